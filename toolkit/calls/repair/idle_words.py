"""Words round an object that hold no data, so that nothing is lost where they are left out."""

from __future__ import annotations

import re

__all__ = ["BLANK", "SPACES", "UnclearError", "check_surroundings", "pass_end_tokens"]

SPACES = " \t\r\n\ufeff\u00a0"
# White space and comments, as part of a verbose pattern.
BLANK = r"(?: [ \t\r\n\ufeff\u00a0]++ | //[^\n]*+ | \#(?![^\s\#])[^\n]*+ | /\*.*?\*/ )++"


class UnclearError(Exception):
    """The text may mean something else.

    Args:
        is_cut_off: True where the text ends before it has become wrong.
    """

    def __init__(self, *, is_cut_off: bool = False) -> None:
        self.is_cut_off: bool = is_cut_off
        super().__init__()


_ONLY_BLANK = re.compile(BLANK, re.VERBOSE | re.DOTALL)
_END_TOKENS = re.compile(
    r"(?:\s*(?:<\|/?\w{1,40}\|>|<\uff5c[\w\u2581]{1,40}\uff5c>|</s>|<eos>|<end_of_turn>|\[/TOOL_CALLS\]"
    r"|</(?:tool_call|tool_calls|function|function_call|functioncall|tools|invoke|parameter)>))++\s*"
)
_FENCE_BEFORE = re.compile(r"(?:(`{3,}|~{3,})[A-Za-z][-\w+.]*|(`+|~{3,}))\s*\Z")
_PROSE = re.compile(r"(?:[^\W\d_]|(?<=[^\W\d_])['\u2019](?=[^\W\d_])|[\s.,;!?*\u2026\u2013\u2014-])*+")
_IDLE_WORD = re.compile(r"[^\W\d_]+")
_INTRODUCING_LABEL = re.compile(r"[^\S\n]*([^\W\d]\w*)\s*[:=]\s*\Z")
_INTRODUCING = (":", ".", "!", "\u2026", ",")
_LABELS = frozenset(
    ["args", "argument", "arguments", "input", "json", "output", "parameters", "params", "answer", "result", "response"]
)
# Words that hold no data and take nothing back; all others might.
_IDLE_WORDS = (
    "a about above additional again all also am an and answer any anything are args argument arguments as ask "
    "asked assist assistance at based be been before being below by call calling can certainly check checking "
    "code complete completed could course data details do each else enough everything executing expected feel "
    "fetch find first following follows for format formatted free from function further gather gathered get "
    "getting give gives go had happy has have help helpful helps here hope how i if in information input inputs "
    "invoking is it its json just know last let like ll look looking m make makes me more most much my necessary "
    "need needed next now of ok okay once other our out output over parameter parameters params part perfect "
    "please point prepare prepared proceed process processing proper properly provide provided query question re "
    "read ready receive received request requested required response result results retrieve retrieved retrieving "
    "run running s search searching see send sending set should show so some soon step sure task tell than thank "
    "thanks that the then there these they thing things this those time to tool try trying understand until up us "
    "use used useful user using valid value values ve wait waiting want was way we were what when where which "
    "while who will wish wished with would yes you your "
)
_IDLE = frozenset(_IDLE_WORDS.split())


def check_surroundings(before: str, after: str) -> None:
    """Raise unless there is nothing around the object but comments, or a fence and prose that can hold no data."""
    before, after = (_drop_comments(part) for part in (before, after))
    fence = _FENCE_BEFORE.search(before[-100:])
    if fence is not None:
        mark = fence[1] or fence[2]
        before = before[: len(before) - len(fence[0])].strip(SPACES)
        if after.startswith(mark):
            after = after[len(mark) :].strip(SPACES)
        elif after or len(mark) < 3:
            raise UnclearError
    after = pass_end_tokens(after)
    _check_prose_before(before)
    if after.startswith((",", ":", "..", "\u2026")):
        raise UnclearError
    if after[:1] == ";":
        after = after[1:]
    _check_prose(pass_end_tokens(after.strip(SPACES)))


def _drop_comments(text: str) -> str:
    text = text.strip(SPACES)
    return "" if _ONLY_BLANK.fullmatch(text) is not None else text


def pass_end_tokens(text: str) -> str:
    """Return what stands behind the tokens by which models end a call or a turn."""
    return text[end.end() :] if (end := _END_TOKENS.match(text)) is not None else text


def _check_prose_before(before: str) -> None:
    last_line = before[before.rfind("\n") + 1 :]
    label = _INTRODUCING_LABEL.fullmatch(last_line)
    if label is not None:
        # `options: {...}` may be the one argument of that name; these words only say what follows.
        if label[1].casefold() not in _LABELS:
            raise UnclearError
        before = before[: len(before) - len(last_line)]
    elif before and not before.endswith(_INTRODUCING):
        raise UnclearError
    _check_prose(before.removesuffix(":"))
    if before and _IDLE_WORD.search(before) is None and "," in before:
        raise UnclearError


def _check_prose(prose: str) -> None:
    if _PROSE.fullmatch(prose) is None or not _IDLE.issuperset(_IDLE_WORD.findall(prose.casefold())):
        raise UnclearError
