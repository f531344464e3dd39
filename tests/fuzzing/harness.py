"""Fuzz one reader of outside input: ``python -m tests.fuzzing.harness TARGET FOLDER [options]``.

The folder keeps the inputs that led somewhere new, and begins with the seeds; the options are libFuzzer's, such as
``-max_total_time=60``. A target is a test of bytes: it fails by raising, by more than `MOST_CALLS` calls of functions
for one input (libFuzzer has its ``-timeout`` for that), or by memory that grows.
"""

import gc
import json
import logging
import random
import sys
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.counted_work import count_calls

__all__ = ["Target", "all_targets", "bend", "can_follow_coverage", "check_growth", "check_inputs", "check_seconds"]

MOST_CALLS = 3_000_000
_MOST_OBJECTS_LEFT = 200
_MOST_ROUNDS = 4
_GROUPS = ("words", "servers", "schemas", "sources", "files")
_ODD: tuple[Any, ...] = (
    None,
    -1,
    0,
    1.5,
    10**400,
    True,
    "",
    "x",
    "\ud800",
    "#/",
    [],
    ["x"],
    {},
    {"a": 1},
    {"$ref": "#"},
)
_PIECES = (
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b":",
        b",",
        b"\\",
        b"\n",
        b"\n\n",
        b"\r",
        b"\0",
        b"\xff",
        b"\xed\xa0\x80",
        b"\\ud800",
    ),
    *(b"null", b"true", b"-1", b"1e400", b"NaN", b"9" * 30, b'""', b"{}", b"[]", b"[" * 300, b'{"a":' * 300),
    *("\u202e\u200b".encode(), b"data: ", b"<tool_call>", b"$ref", b"&a ", b"*a", b"<<: ", b"~", b"- ", b"? "),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One reader.

    Args:
        name: What the command line calls it.
        make: Gives the test; it imports the reader, so that the fuzzer follows what is imported then.
        seeds: Give inputs to begin with.
        follows: The packages whose coverage leads.
        longest: How many bytes an input has at most.
    """

    name: str
    make: Callable[[], Callable[[bytes], None]]
    seeds: Callable[[], Sequence[bytes]]
    follows: Sequence[str]
    longest: int = 8_000


def all_targets() -> dict[str, Target]:
    """Return the targets of all readers, by name."""
    groups = [import_module(f"tests.fuzzing.{group}") for group in _GROUPS]
    return {target.name: target for group in groups for target in group.TARGETS}


def can_follow_coverage() -> bool:
    """Return whether atheris is installed."""
    return find_spec("atheris") is not None


class _Crashes(logging.Handler):
    """Keeps what our own loggers say of exceptions that nobody foresaw."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record)


def without_crashes(test: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Return a test that fails also where a crash is only logged."""
    crashes, logger = _Crashes(), logging.getLogger("toolkit")

    def run(data: bytes) -> None:
        crashes.seen.clear()
        propagates, logger.propagate = logger.propagate, False
        logger.addHandler(crashes)
        try:
            test(data)
        finally:
            logger.removeHandler(crashes)
            logger.propagate = propagates
        for record in crashes.seen:
            if record.exc_info and record.exc_info[1] is not None:
                raise record.exc_info[1]

    return run


def bend(value: Any, dice: random.Random) -> Any:
    """Return a JSON value with something else in a few of its places, in place."""
    # Not at the top: what is imported before the fuzzer is ready is not followed by it.
    from toolkit.schema.nodes import is_array, is_object

    places: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        inner: Any = waiting.pop()
        keys: Any = inner if is_object(inner) else range(len(inner)) if is_array(inner) else ()
        for key in keys:
            places.append((inner, key))
            waiting.append(inner[key])
    for _ in range(dice.choice((1, 1, 2, 4))):
        inside, key = dice.choice(places)
        inside[key] = deepcopy(dice.choice((*_ODD, json.dumps(key), *dice.choice(places))))
    return value


def mutate(seeds: Sequence[bytes], dice: random.Random, longest: int) -> bytes:
    """Return an input that is like a seed: bits, pieces and lines of it changed, doubled, swapped or cut."""
    data = bytearray(dice.choice(seeds))
    for _ in range(dice.choice((1, 1, 2, 3, 8))):
        start = dice.randrange(len(data) + 1)
        end = min(len(data), start + dice.choice((0, 1, 1, 2, 8, 40)))
        match dice.randrange(7):
            case 0:
                data[start:end] = b""
            case 1:
                data[start:end] = dice.choice(_PIECES)
            case 2:
                data[start:start] = dice.choice(_PIECES)
            case 3:
                data[start:end] = bytes(dice.randrange(256) for _ in range(end - start))
            case 4:
                data[start:start] = data[start:end] * dice.choice((1, 2, 50))
            case 5:
                other = dice.choice(seeds)
                data[start:] = other[dice.randrange(len(other) + 1) :]
            case _:
                lines = data.split(b"\n")
                dice.shuffle(lines)
                data = bytearray(b"\n".join(lines))
    return bytes(data[:longest])


def check_inputs(target: Target, mutations: int, *, seed: int = 1) -> None:
    """Give a target its seeds and so many mutations of them."""
    test, seeds, dice = without_crashes(target.make()), target.seeds(), random.Random(seed)
    for data in seeds:
        _try(test, data)
    for _ in range(mutations):
        _try(test, mutate(seeds, dice, target.longest))


def check_seconds(target: Target, seconds: float, *, seed: int = 1) -> int:
    """Give a target mutations of its seeds for as long as that; return how many it took."""
    test, seeds, dice = without_crashes(target.make()), target.seeds(), random.Random(seed)
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        _try(test, mutate(seeds, dice, target.longest))
        count += 1
    return count


def _try(test: Callable[[bytes], None], data: bytes) -> None:
    try:
        calls = count_calls(lambda: test(data))
        assert calls < MOST_CALLS, f"{calls} calls of functions"
    except BaseException as error:
        error.add_note(f"the input was {data!r}")
        raise


def check_growth(target: Target) -> None:
    """Give a target the same inputs again and again, and look whether each time leaves more objects behind."""
    test, seeds = target.make(), target.seeds()[:4]

    def count_after_all() -> int:
        for data in seeds:
            test(data)
        gc.collect()
        return len(gc.get_objects())

    count_after_all()  # what is made once, such as a compiled validator, is there then
    gc.freeze()  # only what comes now is looked at
    before = count_after_all()
    counts = [count_after_all() - before]
    # A thread that is on its way out may hold some until the next round; what leaves more behind does so in each.
    while len(counts) <= _MOST_ROUNDS:
        counts.append(count_after_all() - before)
        if counts[-1] - counts[-2] < _MOST_OBJECTS_LEFT:
            return
    raise AssertionError(f"{target.name} leaves more behind each time: {counts}")


def main() -> None:
    """Fuzz by coverage."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    target = all_targets()[name]
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=list(target.follows)):
        test = without_crashes(target.make())
    for number, seed in enumerate(target.seeds()):
        (folder / str(number)).write_bytes(seed)
    atheris.Setup([sys.argv[0], str(folder), f"-max_len={target.longest}", *sys.argv[3:]], test)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
