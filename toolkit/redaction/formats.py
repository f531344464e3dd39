"""Texts that are secrets by their own format, whatever stands around them, and how they are masked in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from toolkit.redaction.names import Pattern

MASK = "***"
"""The mask that takes the place of a secret."""

DIGEST_SIGN = "secret:"
MIXED = r"(?=[^\W\d]*\d)(?=\d*[^\W\d])"
"""Precedes a word of both letters and digits."""
_DIGEST = Pattern(f"{DIGEST_SIGN}[0-9a-f]{{64}}")
_LOWER_CASE = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_WIDE_LETTERS = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)}


class Format:
    """A format of secrets.

    Args:
        signs: A match begins with one of these, in lower case; to look for them takes a twentieth of the time.
        pattern: Matches a secret: what is behind its first group, or all.
    """

    def __init__(self, signs: Iterable[str], pattern: Pattern) -> None:
        self._signs = [*dict.fromkeys(signs)]
        self._pattern = pattern

    def find_spans(self, text: str, lowered: str) -> Iterator[tuple[int, int]]:
        """Yield where the secrets stand in a text."""
        end = 0
        for place in find_places(lowered, self._signs):
            found = self._pattern.compiled.match(text, place) if place >= end else None
            if found is not None:
                end = found.end()
                yield (found.end(1) if found.re.groups else place), end


def _define_prefixed(prefixes: str, rest: str) -> Format:
    """Return the format of keys that begin with one of these prefixes."""
    words = prefixes.split()
    pattern = rf"(?<!\w)(?:{'|'.join(map(re.escape, words))}){rest}"
    return Format(map(str.lower, words), Pattern(pattern))


def _define_surrounded(signs: str, pattern: str) -> Format:
    """Return a format of which a part stays: what is in front of its group."""
    return Format(signs.split("|"), Pattern(pattern, re.IGNORECASE))


OPTIONS = (
    # the login of an option; the password of a short one, which other programs have for something else
    _define_surrounded(
        "-u|-a|--user|--proxy-user|--auth",
        r"((?<!\S)(?:-u|-a|--(?:proxy-)?user|--auth)[ =]?[ \t]?[\"']?[^\s:%\"'@/-][^\s:%\"'@/]{0,100}[:%])"
        r"(?!(?<=\d:)\d+(?!\S))[^\s\"']{4,}",
    ),
    _define_surrounded(
        "-p",
        r"((?<!\S)-p(?:[\"']?(?=[\w!@#$%^&+]{4}(?<!\d{4}))|[ \t][\"']?(?=\w{8})(?-i:(?=\w*[a-z])(?=\w*[A-Z]))))"
        rf"{MIXED}[\w!@#$%^&+]+(?![\w./:=-])",
    ),
)
# The prefixes of keys are those that vendors have published for scanners of secrets.
_FORMATS = (
    _define_prefixed("sk- pk- rk-", r"[\w-]{16,}"),
    _define_prefixed("sk_live_ sk_test_ pk_live_ pk_test_ rk_live_ rk_test_", r"[A-Za-z0-9]{16,}"),
    _define_prefixed("gsk_ hf_ r8_ ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9]{30,}"),
    _define_prefixed("xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-", r"[\w-]{10,}"),
    _define_prefixed(
        "github_pat_ npm_ lin_api_ figd_ ntn_ sbp_ pul_ rdme_ glrt_ hvs_ hvs. dckr_pat_ ya29.", r"[\w-]{20,}"
    ),
    _define_prefixed("xai- pplx- nvapi- glpat- shpat_ shpca_ shppa_ shpss_ doo_v1_ dop_v1_ dor_v1_", r"[\w-]{20,}"),
    _define_prefixed(
        "pypi- sq0atp- sq0csp- PMAK- GOCSPX- AGE-SECRET-KEY- dapi- shippo_live- shippo_live_ key-", r"[\w-]{24,}"
    ),
    _define_prefixed("AKIA ASIA", r"[A-Z0-9]{16}\b"),
    _define_prefixed("AIza AQ.A ATATT3 1//0", r"[\w=-]{30,}"),
    _define_prefixed("whsec_", r"[\w+/=-]{20,}"),
    _define_prefixed("SG.", r"[\w-]{16,}\.[\w-]{16,}"),
    _define_prefixed("SK dapi", r"[0-9a-f]{32}\b"),
    _define_prefixed("eyJ", r"(?<![\w-]eyJ)[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
    _define_prefixed("MT Mj Mz ND NT Nj Nz OD OT", r"[\w-]{21,26}\.[\w-]{6}\.[\w-]{27,}"),
    _define_prefixed(
        "$apr1$ $argon2i$ $argon2d$ $argon2id$ $1$ $2$ $2a$ $2b$ $2x$ $2y$ $5$ $6$ $y$", r"[\w./+=,$-]{8,}"
    ),
    _define_surrounded("://", r"(://)[^/\s@?#\"'<>]+(?=@)"),
    _define_surrounded("bearer ", r"(\bbearer )[a-z0-9._~+/=-]{16,}"),
    _define_surrounded("authorization: basic ", r"(authorization: basic )[a-z0-9+/=]+"),
    _define_surrounded("private key", r"(private key(?: block)?-----)(?s:.+?)(?=-----end|\Z)"),
    _define_surrounded(
        "hooks.slack.com/|discord.com/api", r"(hooks\.slack\.com/services/|discord\.com/api/webhooks/)[\w/-]{20,}"
    ),
    _define_surrounded("<cookie ", r"(<cookie )\S{1,4000}(?= for )"),
    _define_surrounded(":aa", r"(?<=\d{8})(:)(?-i:AA)[\w-]{30,}"),
    # a line of pgpass, and passwords in SQL
    _define_surrounded(":54|:64|:*:", r"(:(?:[56]4\d\d|\*):[^\s:]{1,100}:[^\s:]{1,100}:)[^\s:]+(?=\s|\Z)"),
    _define_surrounded("password for", r"(password for \S{1,100} ?= ?[\"'])[^\"'\n]+"),
    _define_surrounded(
        "identified", r"(identified\s+(?:with\s+\w{1,40}\s+)?by\s+[\"']?)(?:(?<=[\"'])[^\"'\n]+|(?=\w*\d)\w{8,})"
    ),
    *OPTIONS,
)


def find_known(text: str, lowered: str, formats: Iterable[Format] = _FORMATS) -> Iterator[tuple[int, int]]:
    """Return where texts stand that are secrets by their format."""
    return join_spans([span for each in formats for span in each.find_spans(text, lowered)])


def find_places(lowered: str, signs: Iterable[str]) -> list[int]:
    """Return where one of the signs begins, in order."""
    places: list[int] = []
    for sign in signs:
        place = lowered.find(sign)
        while place >= 0:
            places.append(place)
            place = lowered.find(sign, place + 1)
    places.sort()
    return places


def fold_text(text: str) -> tuple[str, str]:
    """Return a text with wide letters as plain ones, and that in lower case, each character at its place."""
    text = text if text.isascii() else text.translate(_WIDE_LETTERS)
    lowered = text.lower()  # in Turkish, a letter becomes two
    return text, lowered if len(lowered) == len(text) else text.translate(_LOWER_CASE)


def join_spans(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield spans in order, those that overlap as one."""
    begun, ended = -1, -1
    for start, end in sorted(spans):
        if start >= ended:
            if ended >= 0:
                yield begun, ended
            begun = start
        ended = max(end, ended)
    if ended >= 0:
        yield begun, ended


def mask_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text with a mask for each of its secrets: the same object where there are none."""
    pieces: list[str] = []
    written = 0
    for start, end in spans:
        is_digest = text.endswith(DIGEST_SIGN, 0, start) and is_replaced(text[start - len(DIGEST_SIGN) : end])
        if not (is_digest or text.startswith(MASK, start)):
            pieces += text[written:start], MASK
            written = end
    return "".join([*pieces, text[written:]]) if pieces else text


def is_replaced(value: object) -> bool:
    """Return whether a value is a mask or a digest already."""
    return isinstance(value, str) and (value == MASK or _DIGEST.compiled.fullmatch(value) is not None)
