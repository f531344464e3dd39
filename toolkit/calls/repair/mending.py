"""Arguments that were refused as they came: what they must mean, if the tool's schema leaves them one meaning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from toolkit.calls.repair.broken_json import WRAPPERS, Reading, UnclearError, read_surely
from toolkit.calls.repair.readings import DOUBTFUL, find_readings
from toolkit.dataclass import dataclass
from toolkit.errors import InvalidArgumentsError
from toolkit.schema import ArgumentsParser, MalformedJsonError
from toolkit.schema.arguments import decode_strings, find_dropped_nulls
from toolkit.schema.nodes import is_array, is_object

__all__ = ["Mended", "explain_nulls", "mend_arguments"]


@dataclass(slots=True)
class Mended:
    """One step of a repair.

    Args:
        kind: ``text`` where the text was mended, ``values`` where values in it were.
        after: The arguments behind this step, as JSON.
        assumed: The assumptions, in words.
    """

    kind: Any
    after: str
    assumed: tuple[str, ...]


def mend_arguments(
    text: str, parser: ArgumentsParser, error: InvalidArgumentsError
) -> tuple[dict[str, Any], list[Mended]]:
    """Return the arguments that a refused text must mean, and the steps that led there.

    Args:
        text: As the model wrote it.
        parser: The tool's.
        error: Why the parser refused it.

    Raises:
        InvalidArgumentsError: No reading of the arguments fits the schema, or two do; the text is for the model.
    """
    if not isinstance(error, MalformedJsonError):
        return _mend_values(text, parser, error)
    try:
        surely = read_surely(text)
    except UnclearError as unclear:
        if unclear.is_cut_off:
            raise error from None
        return _choose_reading(find_readings(text, parser.nodes), parser, error)
    first = Mended("text", surely.text, surely.assumed)
    try:
        return parser.parse_json(surely.text), [first]
    except MalformedJsonError:
        raise error from None
    except InvalidArgumentsError as still_wrong:
        arguments, more = _mend_values(surely.text, parser, still_wrong)
        return arguments, [first, *more]


def _choose_reading(
    readings: list[Reading], parser: ArgumentsParser, error: InvalidArgumentsError
) -> tuple[dict[str, Any], list[Mended]]:
    """Return the one reading that the schema takes; only where it takes none as it is, are their values mended."""
    for mends_values in (False, True):
        found: dict[str, tuple[dict[str, Any], list[Mended]]] = {}
        for reading in readings:
            first = Mended("text", reading.text, reading.assumed)
            try:
                if mends_values:
                    arguments, more = _mend_values(reading.text, parser, error)
                else:
                    arguments, more = parser.parse_json(reading.text), list[Mended]()
            except InvalidArgumentsError:
                continue
            found[parser.dump_json(arguments, reveal_secrets=True)] = (arguments, [first, *more])
        if len(found) > 1:
            raise MalformedJsonError(f"{error.message} It can be read in more than one way.")
        for arguments, steps in found.values():
            if DOUBTFUL in steps[0].assumed:
                break
            return arguments, steps
    raise error


def _mend_values(
    text: str, parser: ArgumentsParser, error: InvalidArgumentsError
) -> tuple[dict[str, Any], list[Mended]]:
    value = json.loads(text.strip() or "{}")  # a vertical tab is space to the parser, and not to this
    for candidate, assumed in _list_other_values(value, parser):
        try:
            arguments = parser.parse(candidate)
        except InvalidArgumentsError as still_wrong:
            # What is wrong behind a step says more than what was wrong before it.
            error = still_wrong if candidate is not value and is_object(candidate) and is_object(value) else error
            continue
        return arguments, [Mended("values", json.dumps(candidate, ensure_ascii=False), assumed)]
    raise error


def _list_other_values(value: Any, parser: ArgumentsParser) -> Iterator[tuple[Any, tuple[str, ...]]]:
    assumptions: list[str] = []
    decoded = decode_strings(parser, value, assumed=assumptions)
    if decoded is not None:
        yield decoded, tuple(assumptions)
    unwrapped = _unwrap_arguments(value, parser)
    if unwrapped is not None:
        inner, assumed = unwrapped
        yield inner, (assumed,)
        assumptions = [assumed]
        decoded = decode_strings(parser, inner, assumed=assumptions)
        if decoded is not None:
            yield decoded, tuple(assumptions)


def _unwrap_arguments(value: Any, parser: ArgumentsParser) -> tuple[Any, str] | None:
    if is_array(value) and len(value) == 1 and is_object(value[0]):
        return value[0], "the list round the one object was left out"
    if not is_object(value) or len(value) != 1:
        return None
    ((name, inner),) = value.items()
    nodes = parser.nodes
    is_known = any(name in choice.get("properties", {}) for choice in nodes.choices(nodes.root))
    if name not in WRAPPERS or is_known:
        return None
    if isinstance(inner, str):
        try:
            inner = json.loads(read_surely(inner).text)
        except UnclearError:
            return None
    return (inner, f'the object under "{name}" was taken for the arguments') if is_object(inner) else None


def explain_nulls(text: str, parser: ArgumentsParser) -> Mended | None:
    """Return the step by which null for what has a default was taken as left out; None where none was."""
    try:
        value = json.loads(text)
        paths = find_dropped_nulls(parser.nodes, value) if is_object(value) else []
    except (ValueError, RecursionError):
        return None
    if not paths:
        return None
    for path in paths:
        container: Any = value
        for key in path[:-1]:
            container = container[key]
        del container[path[-1]]
    names = [".".join(map(str, path)) for path in paths]
    assumed = tuple([f"{name}: null was taken as left out" for name in names])
    return Mended("values", json.dumps(value, ensure_ascii=False), assumed)
