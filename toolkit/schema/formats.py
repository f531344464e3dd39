"""The formats of JSON Schema, for those who want them checked; a name that is not here is checked by nobody."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from toolkit.schema.patterns import PatternError, compile_pattern

__all__ = ["FORMATS"]

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = re.compile(r"(\d{2}):(\d{2}):(\d{2})(?:\.\d+)?(?:[Zz]|([+-])(\d{2}):(\d{2}))", re.ASCII)
_DAYS = r"(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)"
_HOURS = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"
_DURATION = re.compile(rf"P(?:\d+W|{_DAYS}(?:{_HOURS})?|{_HOURS})", re.ASCII)
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL = re.compile(rf'(?:{_ATOM}(?:\.{_ATOM})*|"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\[\x20-\x7e])+")')
_HOST_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_RELATIVE_POINTER = re.compile(r"(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ESCAPED = r"%[0-9A-Fa-f]{2}"
_CHARACTERS = r"A-Za-z0-9._~!$&'()*+,;=:@\-"
_BEYOND = "\u00a0-\U0010fffd"
_TEMPLATE_VARIABLE = rf"(?:[A-Za-z0-9_]|{_ESCAPED})(?:\.?(?:[A-Za-z0-9_]|{_ESCAPED}))*(?:\*|:[1-9][0-9]{{0,3}})?"
_TEMPLATE = re.compile(
    rf"(?:[^\x00-\x20\"'%<>\\^`{{|}}]|{_ESCAPED}|\{{[+#./;?&=,!@|]?{_TEMPLATE_VARIABLE}(?:,{_TEMPLATE_VARIABLE})*\}})*"
)


def _is_date(text: str) -> bool:
    if _DATE.fullmatch(text) is None:
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_time(text: str) -> bool:
    found = _TIME.fullmatch(text)
    if found is None:
        return False
    hour, minute, second = (int(part) for part in found.group(1, 2, 3))
    away = (int(found[5]), int(found[6])) if found[4] else (0, 0)
    if hour > 23 or minute > 59 or second > 60 or away[0] > 23 or away[1] > 59:
        return False
    if second < 60:
        return True
    # A leap second is the last one of a day in UTC.
    minutes = hour * 60 + minute + (away[0] * 60 + away[1]) * (1 if found[4] == "-" else -1)
    return minutes % 1440 == 1439


def _is_date_time(text: str) -> bool:
    return text[10:11] in {"T", "t"} and _is_date(text[:10]) and _is_time(text[11:])


def _is_email(text: str) -> bool:
    local, at, domain = text.rpartition("@")
    if not at or _LOCAL.fullmatch(local) is None:
        return False
    if domain.startswith("["):
        inside = domain[1:-1]
        return domain.endswith("]") and (_is_ipv6(inside[5:]) if inside.startswith("IPv6:") else _is_ipv4(inside))
    return _is_hostname(domain)


def _is_hostname(text: str) -> bool:
    if not text or len(text) > 253:
        return False
    labels = text.split(".")
    return all(_HOST_LABEL.fullmatch(label) and (label[2:4] != "--" or label[:4].lower() == "xn--") for label in labels)


def _is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return text.isascii()


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return text.isascii() and "%" not in text


def _is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def _is_regex(text: str) -> bool:
    try:
        compile_pattern(text)
    except PatternError:
        return False
    return True


def _make_uri_check(beyond: str, *, is_reference: bool) -> Callable[[str], bool]:
    part = rf"(?:[{_CHARACTERS}{beyond}]|{_ESCAPED})"
    host = rf"(?:\[[0-9A-Fa-fvV.:]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=\-{beyond}]|{_ESCAPED})*)"
    authority = rf"(?:(?:[A-Za-z0-9._~!$&'()*+,;=:\-{beyond}]|{_ESCAPED})*@)?(?P<host>{host})(?::[0-9]*)?"
    rest = rf"(?:\?(?:{part}|[/?])*)?(?:#(?:{part}|[/?])*)?"
    path = rf"(?://{authority}(?:/{part}*)*|/(?:{part}+(?:/{part}*)*)?|{part}+(?:/{part}*)*|)"
    absolute = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:{path}{rest}")
    bare = rf"(?:[A-Za-z0-9._~!$&'()*+,;=@\-{beyond}]|{_ESCAPED})+(?:/{part}*)*"
    relative = re.compile(rf"{path.replace(f'{part}+(?:/{part}*)*|)', f'{bare}|)')}{rest}")

    def check(text: str) -> bool:
        found = absolute.fullmatch(text) or (relative.fullmatch(text) if is_reference else None)
        if found is None:
            return False
        host = found["host"]
        return not host or not host.startswith("[") or host[1:2] in "vV" or _is_ipv6(host[1:-1])

    return check


def _match_whole(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "date": _is_date,
    "time": _is_time,
    "date-time": _is_date_time,
    "duration": _match_whole(_DURATION),
    "email": _is_email,
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ip-address": _is_ipv4,
    "ipv6": _is_ipv6,
    "uuid": _is_uuid,
    "uri": _make_uri_check("", is_reference=False),
    "uri-reference": _make_uri_check("", is_reference=True),
    "iri": _make_uri_check(_BEYOND, is_reference=False),
    "iri-reference": _make_uri_check(_BEYOND, is_reference=True),
    "uri-template": _match_whole(_TEMPLATE),
    "json-pointer": _match_whole(_POINTER),
    "relative-json-pointer": _match_whole(_RELATIVE_POINTER),
    "regex": _is_regex,
}
"""For each format that can be checked, whether a text is of it."""
