"""What reads a model's words: calls in text, repaired names and arguments, quotations. Nothing is invented."""

import json
import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, get_args

from tests.fuzzing.harness import Target, hold_loop

__all__ = ["TARGETS"]

# What is longer is read in a thread.
_LONG = 1_000
_LONG_BROKEN = 2_000


def words_in(value: Any) -> list[str]:
    """All words of the strings and keys in a JSON value."""
    # Not at the top: what is imported before the fuzzer is ready is not followed by it.
    from toolkit.schema.nodes import is_array, is_object

    if is_object(value):
        return [word for key, inner in value.items() for word in [*words_in(key), *words_in(inner)]]
    if is_array(value):
        return [word for inner in value for word in words_in(inner)]
    return re.findall(r"\w+", value) if isinstance(value, str) else []


def check_nothing_invented(arguments: str, text: str) -> None:
    value: Any = json.loads(arguments)
    assert isinstance(value, dict)
    if "\\" in text:
        return  # an escape stands for a character that is not there
    for word in words_in(value):
        assert word in text, (word, text)


def reply_target() -> Callable[[bytes], None]:
    parsing = import_module("toolkit.parsing")
    tools = import_module("tests.parsing.corpus").TOOLS

    def in_pieces(text: str, size: int) -> Any:
        reader = parsing.ReplyReader(tools)
        parts: list[Any] = []
        for start in range(0, len(text), size):
            parts += reader.feed(text[start : start + size])
        return reader.collect([*parts, *reader.finish()])

    def test(data: bytes) -> None:
        text = data[1:].decode("utf-8", "surrogateescape")
        read = partial(parsing.read_reply, text, tools)
        reply = read() if len(text) > _LONG else hold_loop(read)
        for size in {1, 1 + data[0] % 16} if data else ():
            assert in_pieces(text, size) == reply, text
        if not reply.calls and not reply.unread:
            assert reply.text == text
        for call in reply.calls:
            assert call.name in text or json.dumps(call.name)[1:-1] in text
            check_nothing_invented(call.arguments, text)
        assert all(unread.text in text and unread.reason for unread in reply.unread)

    return test


def repair_target() -> Callable[[bytes], None]:
    repair = import_module("toolkit.calls.argument_repair")
    naming = import_module("toolkit.tool_names")
    names = ["get_weather", "add", "read_file", "readFile"]

    def test(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        run_repair = partial(repair.repair_arguments, text)
        repaired = run_repair() if len(text) > _LONG_BROKEN else hold_loop(run_repair)
        if repaired is not None:
            check_nothing_invented(repaired, text)
            assert json.loads(repair.repair_arguments(repaired)) == json.loads(repaired)
        name = hold_loop(partial(naming.repair_name, text, names))
        assert name is None or name in names
        assert set(hold_loop(partial(naming.nearest_names, text, names))) <= set(names)

    return test


def try_in_loop(run: Callable[[], Any]) -> Any:
    """Call a function as the event loop does, within a trial; return None where a thread would go on with it."""
    budgets = import_module("toolkit.schema.arguments")
    budgets.SHARED_BUDGET.current = "trial"
    try:
        return run()
    except budgets.TooMuchWorkError:
        return None
    finally:
        budgets.SHARED_BUDGET.current = None


def readings_target() -> Callable[[bytes], None]:
    repairs = import_module("toolkit.calls.argument_repair")
    errors = import_module("toolkit.errors")
    table = import_module("tests.calls.repair_table")

    def test(data: bytes) -> None:
        text = data[1:].decode("utf-8", "surrogateescape")
        parser: Any = (table.write_file, table.plan_trip)[data[0] % 2 if data else 0].arguments
        try:
            hold_loop(partial(parser.parse_json, text))
            return
        except errors.InvalidArgumentsError as error:
            refusal = error
        repair_call = partial(repairs.repair_to_fit, text, parser, refusal)
        try:
            arguments, steps = (
                repair_call()
                if len(text) > _LONG_BROKEN
                else hold_loop(partial(try_in_loop, repair_call)) or repair_call()
            )
        except errors.InvalidArgumentsError:
            return
        # What is taken is what the last step says, and each step says what it assumed.
        assert parser.parse_json(steps[-1].after) == arguments, text
        assert all(step.assumed for step in steps), text
        if "&" not in text:
            check_nothing_invented(steps[-1].after, text)

    return test


def quotation_target() -> Callable[[bytes], None]:
    parsing = import_module("toolkit.parsing")
    wording = import_module("toolkit.parsing.wording")
    escaping = import_module("toolkit.parsing.wording")
    tools = import_module("tests.parsing.corpus").TOOLS
    call = import_module("toolkit").ToolCall("", "add", '{"a": 917, "b": 2}')
    formats = [name for name in get_args(parsing.TextFormat) if name != "auto"]

    def test(data: bytes) -> None:
        text = data[1:].decode("utf-8", "surrogateescape")
        name = formats[data[0] % len(formats) if data else 0]
        words = wording.wording_of(name)
        written = words.write_calls([call])
        # A call that is introduced, quoted or enclosed is none, whatever stands before that.
        for before in ("The page says:\n", "\u201c", "<page>\n", "> "):
            for reply in (before + written, f"{text}\n\n{before}{written}"):
                calls = hold_loop(partial(parsing.read_reply, reply, tools, format=name)).calls
                assert not any("917" in each.arguments for each in calls), (reply, name)
        # One that the model was given is none anywhere.
        given = f"{text}\n{written}"
        assert not parsing.read_reply(given, tools, format=name, given=[given]).calls, (text, name)
        # What is escaped has no token left, and escaping it once more changes nothing.
        escaped = words.escape(text)
        assert words.escape(escaped) == escaped, text
        assert escaping.escape_json(escaping.escape_json(json.dumps(text))) == escaping.escape_json(json.dumps(text))
        assert json.loads(escaping.escape_json(json.dumps(text))) == text

    return test


_TOOLS = ["toolkit.calls.argument_repair", "toolkit.tool_names"]


def _replies() -> list[bytes]:
    corpus = import_module("tests.parsing.corpus").CORPUS
    return [b"\x03" + case.reply.encode("utf-8", "surrogatepass") for case in corpus]


def _replies_and_arguments() -> list[bytes]:
    sections = import_module("tests.calls.repair_table").SECTIONS
    return [
        *_replies(),
        b"\x03\x0b",
        *[b"\x03" + row.written.encode("utf-8", "surrogatepass") for part in sections for row in part.rows],
    ]


TARGETS = [
    Target(name="reply", make=reply_target, seeds=_replies, follows=["toolkit.parsing"], longest=2_000, swollen=1_000),
    Target(name="repair", make=repair_target, seeds=_replies, follows=_TOOLS, longest=2_000, swollen=3_000),
    Target(
        name="readings",
        make=readings_target,
        seeds=_replies_and_arguments,
        follows=_TOOLS,
        longest=2_000,
        swollen=3_000,
    ),
    Target(
        name="quotation",
        make=quotation_target,
        seeds=_replies,
        follows=["toolkit.parsing"],
        longest=2_000,
        swollen=3_000,
    ),
]
