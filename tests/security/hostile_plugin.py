"""A plugin that describes itself and answers the call "attack" with bytes that it is given; others it answers well."""

import json
import os
import sys
import time

described, attack = (bytes.fromhex(argument) for argument in sys.argv[1:3])
for flag in sys.argv[3:]:
    if flag.startswith("--attack="):
        with open(flag.removeprefix("--attack="), "rb") as file:  # noqa: PTH123 - no library is loaded
            attack = file.read()
NAMES_CALLS = "names-calls" in sys.argv[3:]
ECHO = {"name": "echo", "parameters": {"properties": {"text": {"type": "string"}}, "required": ["text"]}}


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


for line in sys.stdin:
    request = json.loads(line)
    if request["type"] == "describe":
        write(described or json.dumps(ECHO).encode() + b"\n")
    elif request["type"] == "call" and request["params"]["text"] == "attack":
        data = attack.replace(b"$ID", request["call_id"].encode())
        if data.startswith(b"EXIT"):
            os._exit(7)
        if data.startswith(b"CLOSE"):
            os.close(1)
            time.sleep(60)
        for part in data.split(b"PAUSE"):
            if part == b"EXIT":
                os._exit(7)
            write(part)
            time.sleep(0.01 if b"PAUSE" in data else 0)
    else:
        answer = {"content": request["params"]["text"]}
        if NAMES_CALLS:
            answer["call_id"] = request["call_id"]
        write(json.dumps(answer).encode() + b"\n")
