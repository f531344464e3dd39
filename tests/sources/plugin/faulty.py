"""A plugin that does what plugins should not; its first argument says what."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MODE = sys.argv[1]
ECHO: dict[str, Any] = {
    "name": "echo",
    "description": "Say it again.",
    "parameters": {"properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def say(message: object) -> None:
    print(json.dumps(message), flush=True)


def text(content: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": content}], "error": False, **more}


def describe() -> None:  # noqa: C901
    match MODE:
        case "silent at first":
            time.sleep(60)
        case "no JSON":
            print("Welcome to my plugin!", flush=True)
        case "wrong":
            say({"title": "echo"})
        case "twice":
            say({"tools": [ECHO, ECHO]})
        case "wrong schema":
            say({**ECHO, "parameters": {"properties": {"text": {"type": "txt"}}}})
        case "nested without end":
            print("[" * 100_000, flush=True)
        case "wrong extension":
            say({**ECHO, "extensions": ["telepathy"]})
        case "not UTF-8 at first":
            sys.stdout.buffer.write(b'{"name": "caf\xe9"}\n')
            sys.stdout.buffer.flush()
        case "too many":
            say({"tools": [{**ECHO, "name": f"echo{n}"} for n in range(1000)]})
        case "too long a description":
            say({**ECHO, "description": "x" * 100_000})
        case "too large a schema":
            say({**ECHO, "parameters": {"properties": {f"p{n}": {"type": "string"} for n in range(20_000)}}})
        case "endless description":
            for n in range(10_000):
                print("[" if n == 0 else '"' + "x" * 1000 + '",', flush=True)
        case "renews" if Path(os.environ["RENEWED"]).exists():
            say(
                {
                    **ECHO,
                    "description": "Another.",
                    "parameters": {"properties": {"said": {"type": "string"}}, "required": ["said"]},
                }
            )
        case "ends later than its output":
            os.close(1)
            sys.stdin.read()  # until the plugin is ended
            sys.stderr.write("its config was lost\n")
            os._exit(3)
        case "ends at once":
            print("no config found", file=sys.stderr, flush=True)
            sys.exit(3)
        case "pretty":
            print(json.dumps(ECHO, indent=2), flush=True)
        case "defaults":
            say({**ECHO, "parameters": {"properties": {"text": {}, "loud": {"type": "boolean", "default": True}}}})
        case "several":
            say({"tools": [ECHO, {**ECHO, "name": "shout it!"}]})
        case "concurrent":
            say({**ECHO, "extensions": ["concurrent", "updates", "cancel"]})
        case "updates" | "nested":
            say({**ECHO, "extensions": ["updates"]})
        case _:
            say(ECHO)


def call(request: dict[str, Any]) -> None:  # noqa: C901
    said = request["params"]["text"]
    match MODE:
        case "silent":
            time.sleep(60)
        case "defaults":
            say(text(json.dumps(request["params"])))
        case "echoing":
            say(text(said, call_id=request["call_id"]))
        case "echoing slowly":
            time.sleep(float(said))
            say(text(said, call_id=request["call_id"]))
        case "loses one":
            if said != "lose":
                say(text(said, call_id=request["call_id"]))
        case "pretty answers":
            print(json.dumps(text(said, call_id=request["call_id"]), indent=2), flush=True)
        case "pretty logs":
            print("{", "  said: 'hello'", "}", sep="\n", flush=True)
            say(text(said, call_id=request["call_id"]))
        case "again a moment later":
            say(text(said))
            time.sleep(0.03)
            say(text("once more"))
        case "counts":
            calls.append(said)
            say(text(f"{len(calls)} in {os.getpid()}"))
        case "counts and names calls":
            calls.append(said)
            say(text(f"{len(calls)} in {os.getpid()}", call_id=request["call_id"]))
        case "names calls at first":
            calls.append(said)
            say(text(said, call_id=request["call_id"]) if len(calls) == 1 else text(said))
        case "echoing twice":
            say(text(said, call_id=request["call_id"]))
            say(text("once more", call_id=request["call_id"]))
        case "names another call":
            say(text(said, call_id="no such call"))
        case "not UTF-8" if said == "break":
            sys.stdout.buffer.write(b'{"content": "caf\xe9"}\n')
            sys.stdout.buffer.flush()
        case "error in words":
            errors = {"text": "no luck", "object": {"message": "no luck"}, "none": "", "null": None, "number": 7}
            say({"error": errors[said]} if said in ("text", "object", "number") else text("fine", error=errors[said]))
        case "error beside content":
            say({**text("half of it"), "error": "no luck"})
        case "renews" if said == "exit":
            Path(os.environ["RENEWED"]).touch()
            sys.exit(3)
        case "slow":
            time.sleep(float(said))
            say(text(said))
        case "garbage":
            print("{]", "[1, 2]", sep="\n", flush=True)
            say(text(said))
        case "nested":
            nested = "[" * 600 + "]" * 600
            print('{"type": "update", "content": [{"x": ' + nested + '}], "details": ' + nested + "}", flush=True)
            named = json.dumps(request["call_id"])
            print(f'{{"call_id": {named}, "content": [{{"x": {nested}}}], "details": {nested}}}', flush=True)
        case "no content":
            say({"result": said})
        case "two lines":  # at once: what comes later could be the answer to the next call
            print(json.dumps(text(said)) + "\n" + json.dumps(text("once more")), flush=True)
        case "huge line":
            sys.stdout.write("x" * 50_000_000)
            sys.stdout.flush()
        case "closed output" if said == "close":
            os.close(1)
            time.sleep(60)
        case "exits" if said.startswith("exit"):
            print("giving up", said, file=sys.stderr, flush=True)
            sys.exit(3)
        case "killed" if said == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "flood":
            sys.stderr.write(("e" * 199 + "\n") * 25_000)
            sys.stderr.write("f" * 5_000_000)
            sys.stderr.flush()
            say(text(said))
        case "children":
            child = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 60 & wait"])
            say(text(str(child.pid)))
        case "several" if said == "exit":
            sys.exit(3)
        case "several":
            say(text(f"{request['tool']}: {said}"))
        case "blocks":
            image = {"type": "image", "mimeType": "image/gif", "data": "aGk="}
            sound = {"type": "audio", "data": "aGk="}
            file = {"type": "file", "name": "a.txt", "data": "aGk="}
            odd = {"type": "hologram", "x": 1}
            say({"content": [{"type": "text", "text": said}, image, sound, file, odd], "details": {"a": 1}})
        case "says no":
            say({"content": [{"type": "text", "text": "Error: no "}, {"type": "text", "text": said}], "error": True})
        case "updates":
            for number in (1, 2):
                say({"type": "update", "content": [{"type": "text", "text": f"step {number}"}]})
            say(text(said))
        case "environment":
            say(text(os.environ.get(said, "not set") + " " + str(Path.cwd())))
        case _:
            say(text(said))


calls: list[str] = []
waiting: list[dict[str, Any]] = []


def call_concurrently(request: dict[str, Any]) -> None:
    """Answer pairs of calls the wrong way round; tell of cancelled ones by an answer to the next."""
    if request["type"] == "cancel":
        waiting[:] = [each for each in waiting if each["call_id"] != request["call_id"]]
        print(f"cancelled {request['call_id']}", file=sys.stderr, flush=True)
        return
    waiting.append(request)
    say({"type": "update", "call_id": request["call_id"], "content": [{"type": "text", "text": "begun"}]})
    if len(waiting) == 2:
        for each in reversed(waiting):
            say(text(each["params"]["text"], call_id=each["call_id"]))
        waiting.clear()


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if request["type"] == "describe":
            describe()
        elif MODE == "concurrent":
            call_concurrently(request)
        elif request["type"] == "call":
            call(request)


if __name__ == "__main__":
    main()
