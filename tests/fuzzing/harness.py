"""Fuzz one reader of outside input: ``python -m tests.fuzzing.harness TARGET FOLDER [options]``.

The folder keeps the inputs that led somewhere new, and begins with the seeds; the options are libFuzzer's, such as
``-max_total_time=60``. A target is a test of bytes: it fails by raising, by more than `MOST_CALLS` calls of functions
for one input (libFuzzer has its ``-timeout`` for that), by memory that grows, or by holding an event loop for longer
than `LONGEST_TURN`: it runs what is async by `run_in_loop`, and what an event loop would wait for by `hold_loop`.
"""

import gc
import json
import logging
import math
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.counted_work import count_calls
from tests.loop_turns import LONGEST_TURN, METER, slowness

__all__ = [
    "Target",
    "all_targets",
    "bend",
    "can_follow_coverage",
    "check_growth",
    "check_inputs",
    "check_seconds",
    "check_turns",
    "hold_loop",
    "run_in_loop",
]

MOST_CALLS = 3_000_000
_MOST_OBJECTS_LEFT = 200
_SWOLLEN = 900_000
_ENTRY_TRIES = 4
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
        swollen: How many bytes an input has when one piece of it is repeated; what is longer is read in threads.
    """

    name: str
    make: Callable[[], Callable[[bytes], None]]
    seeds: Callable[[], Sequence[bytes]]
    follows: Sequence[str]
    longest: int = 8_000
    swollen: int = _SWOLLEN


def hold_loop(run: Callable[[], Any]) -> Any:
    """Call a function that an event loop waits for, and measure it."""
    return METER.during(run)


def run_in_loop(function: Callable[[], Awaitable[Any]], backend: str = "asyncio", **options: Any) -> None:
    """Run an async function in an event loop whose turns are measured."""
    METER.run(function, backend, **options)


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


def swell(data: bytes, dice: random.Random, size: int) -> bytes:
    """Return an input with one piece of it repeated, until it has that size."""
    start = dice.randrange(len(data) + 1)
    piece = data[start : start + dice.choice((1, 1, 2, 5, 20, 100))] or b"x"
    return data[:start] + piece * (max(0, size - len(data)) // len(piece)) + data[start:]


def check_inputs(target: Target, mutations: int, *, seed: int = 1) -> None:
    """Give a target its seeds and so many mutations of them."""
    test, seeds, dice = without_crashes(target.make()), target.seeds(), random.Random(seed)
    for data in seeds:
        _try(test, data)
    for _ in range(mutations):
        _try(test, mutate(seeds, dice, target.longest))


def check_turns(target: Target, inputs: Iterable[bytes]) -> tuple[int, float]:
    """Give a target inputs without counting its calls; return how many, and the longest turn in seconds."""
    test = without_crashes(target.make())
    count, longest = 0, 0.0
    gc.collect()
    gc.freeze()  # for good: what was there before is looked through no more, which would be part of some turn
    for data in inputs:
        longest = max(longest, _check_turn(test, data))
        count += 1
    return count, longest


def _check_turn(test: Callable[[bytes], None], data: bytes) -> float:
    """Run a test, and return its longest turn in seconds of the reference machine; one that is too long is tried again.

    What is compiled or imported for the first time is no work of an input.
    """
    longest = math.inf
    for _ in range(_ENTRY_TRIES):
        METER.longest = 0.0
        try:
            test(data)
        except BaseException as error:
            error.add_note(f"the input was {data[:10_000]!r}")
            raise
        longest = min(longest, METER.longest)
        if longest <= LONGEST_TURN:
            return longest
    longest /= slowness()
    assert longest <= LONGEST_TURN, f"it held the event loop for {longest:.3f} s; the input was {data[:10_000]!r}"
    return longest


def swollen_inputs(target: Target, count: int, *, seed: int = 1) -> Iterator[bytes]:
    """Yield mutations of a target's seeds, each swollen."""
    seeds, dice = target.seeds(), random.Random(seed)
    for _ in range(count):
        yield swell(mutate(seeds, dice, target.longest), dice, target.swollen)


def check_seconds(target: Target, seconds: float, *, seed: int = 1) -> int:
    """Give a target mutations of its seeds for as long as that; return how many it took."""
    seeds, dice = target.seeds(), random.Random(seed)
    test, end, count = without_crashes(target.make()), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        _try(test, mutate(seeds, dice, target.longest))
        count += 1
    return count


def mutations_for(target: Target, seconds: float, *, seed: int) -> Iterator[bytes]:
    """Yield mutations of a target's seeds for as long as that, every twentieth swollen."""
    seeds, dice = target.seeds(), random.Random(seed)
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        data = mutate(seeds, dice, target.longest)
        count += 1
        yield swell(data, dice, target.swollen) if count % 20 == 0 else data


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
    """Fuzz by coverage; with ``turns=SECONDS`` for options, without it, and tell the longest turn."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    target = all_targets()[name]
    if sys.argv[3:] and sys.argv[3].startswith("turns="):
        seconds = float(sys.argv[3].removeprefix("turns="))
        kept = [file.read_bytes() for file in sorted(folder.iterdir())]
        count, longest = check_turns(target, [*kept, *swollen_inputs(target, 20)])
        more, longest_of_more = check_turns(target, mutations_for(target, seconds, seed=time.time_ns()))
        print(f"{name}: {count + more} inputs, longest turn {1000 * max(longest, longest_of_more):.1f} ms", flush=True)
        return
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=list(target.follows)):
        test = without_crashes(target.make())
    for number, seed in enumerate(target.seeds()):
        (folder / str(number)).write_bytes(seed)
    atheris.Setup([sys.argv[0], str(folder), f"-max_len={target.longest}", *sys.argv[3:]], test)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
