"""Who refuses says why: for each type the reason of its own validator, and an example that really passes."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import Path
from re import Pattern
from typing import Annotated, Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from annotated_types import Predicate
from pydantic import (
    UUID1,
    UUID3,
    UUID4,
    UUID5,
    UUID7,
    AfterValidator,
    AmqpDsn,
    AnyUrl,
    AwareDatetime,
    Base64Str,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ClickHouseDsn,
    CockroachDsn,
    DirectoryPath,
    Field,
    FilePath,
    FileUrl,
    FtpUrl,
    FutureDate,
    FutureDatetime,
    HttpUrl,
    IPvAnyAddress,
    IPvAnyInterface,
    IPvAnyNetwork,
    Json,
    KafkaDsn,
    MariaDBDsn,
    MongoDsn,
    MySQLDsn,
    NaiveDatetime,
    NewPath,
    PastDate,
    PastDatetime,
    PlainSerializer,
    PostgresDsn,
    RedisDsn,
    SecretStr,
    SnowflakeDsn,
    Strict,
    StringConstraints,
    WebsocketUrl,
    field_validator,
)

from toolkit.errors import InvalidArgumentsError
from toolkit.schema import function_schema


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Permission(Flag):
    READ = 1
    WRITE = 2


@dataclass
class Inner:
    count: int

    def __post_init__(self) -> None:
        if self.count > 5:
            raise KeyError(self.count)


class Named(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name != "ada":
            raise ValueError("name must be ada; see https://example.com/names?q=1")
        return name


@dataclass
class Odd:
    value: Annotated[int, PlainSerializer(lambda value: value / 0)]


def be_even(number: int) -> int:
    if number % 2:
        raise ValueError("value must be even")
    return number


def divide(number: int) -> float:
    return 1 / (number - 3)


def limited(hint: Any, **limits: Any) -> Any:
    return Annotated[hint, Field(**limits)]


# A type, what is sent, what the refusal says, and whether it has an example.
REFUSALS: list[tuple[Any, Any, str, bool]] = [
    (ZoneInfo, "Mars/X", "invalid timezone: Mars/X", True),
    (IPv4Address, "1.2.3", "not a valid IPv4 address", True),
    (IPv6Address, "zz", "not a valid IPv6 address", True),
    (IPv4Network, "10.0.0.1/8", "not a valid IPv4 network", True),
    (IPv6Network, "x", "not a valid IPv6 network", True),
    (IPv4Interface, "1.1.1.1/99", "not a valid IPv4 interface", True),
    (IPv6Interface, "x", "not a valid IPv6 interface", True),
    (IPvAnyAddress, "no", "not a valid IPv4 or IPv6 address", True),
    (IPvAnyNetwork, "no", "not a valid IPv4 or IPv6 network", True),
    (IPvAnyInterface, "no", "not a valid IPv4 or IPv6 interface", True),
    (Decimal, "abc", "valid decimal", True),
    (limited(Decimal, max_digits=3), 12345, "no more than 3 digits", True),
    (limited(Decimal, decimal_places=1), "1.25", "no more than 1 decimal place", True),
    (limited(Decimal, gt=5), "3", "greater than 5", True),
    (UUID, "abc", "it must be a UUID like", True),
    (UUID, "123", "invalid length", True),
    (UUID1, "123e4567-e89b-42d3-a456-426614174000", "UUID version 1 expected", True),
    (UUID3, "123e4567-e89b-42d3-a456-426614174000", "UUID version 3 expected", True),
    (UUID4, "123e4567-e89b-12d3-a456-426614174000", "UUID version 4 expected", True),
    (UUID5, "123e4567-e89b-42d3-a456-426614174000", "UUID version 5 expected", True),
    (UUID7, "123e4567-e89b-42d3-a456-426614174000", "UUID version 7 expected", True),
    (PastDate, "2999-01-01", "in the past", True),
    (FutureDate, "1999-01-01", "in the future", True),
    (PastDatetime, "2999-01-01T00:00:00", "in the past", True),
    (FutureDatetime, "1999-01-01T00:00:00", "in the future", True),
    (AwareDatetime, "2026-01-31T12:00:00", "should have timezone info", True),
    (NaiveDatetime, "2026-01-31T12:00:00Z", "should not have timezone info", True),
    (limited(date, gt=date(2020, 1, 1)), "2019-01-01", "greater than 2020-01-01", True),
    (limited(date, lt=date(1900, 1, 1)), "2019-01-01", "less than 1900-01-01", True),
    (limited(timedelta, le=timedelta(hours=1)), "PT5H", "less than or equal to 1 hour", True),
    (limited(datetime, ge=datetime(2030, 1, 1)), "2020-01-01T00:00:00", "equal to 2030-01-01", True),  # noqa: DTZ001
    (date, "soon", "it must be a date like 2026-01-31", True),
    (date, "2026-13-01", "month value is outside expected range", True),
    (datetime, "2026-02-30T00:00:00", "day value is outside expected range", True),
    (time, "25:00", "hour value is outside expected range", True),
    (timedelta, "soon", "it must be a duration like", True),
    (Base64Str, "a", "Base64 decoding error", True),
    (HttpUrl, "ftp://x.y", "scheme should be 'http' or 'https'", True),
    (AnyUrl, "no", "valid URL", True),
    (FtpUrl, "http://a.b", "scheme should be 'ftp'", True),
    (WebsocketUrl, "http://a.b", "scheme should be 'ws'", True),
    (FileUrl, "http://a", "scheme should be 'file'", True),
    (PostgresDsn, "http://a.b", "scheme should be 'postgres'", True),
    (RedisDsn, "http://x", "scheme should be 'redis'", True),
    (MongoDsn, "http://x", "scheme should be 'mongodb'", True),
    (AmqpDsn, "http://x", "scheme should be 'amqp'", True),
    (KafkaDsn, "x", "valid URL", True),
    (MySQLDsn, "http://x", "scheme should be 'mysql'", True),
    (Annotated[int, Predicate(lambda number: number > 10)], 3, "Predicate", True),
    (Annotated[int, AfterValidator(be_even)], 3, ". value must be even.", True),
    (Annotated[int, AfterValidator(divide)], 3, "ZeroDivisionError: division by zero", True),
    (Annotated[str, BeforeValidator(str.strip)], 5, "it must be a string", True),
    (Named, {"name": "bob"}, ". name must be ada; see https://example.com/names?q=1", False),
    (Inner, {"count": 9}, "KeyError: 9", True),
    (limited(str, pattern="^[A-Z]{3}-[0-9]+$"), "abc", "the regular expression ^[A-Z]{3}-[0-9]+$", True),
    (Json, "{", "Invalid JSON: EOF while parsing an object", True),
    (Json[list[int]], '["a"]', "In the JSON that it holds, at 0: Input should be a valid integer", True),
    (Json[dict[str, int]], '{"a": "x"}', "In the JSON that it holds, at a: Input should be a valid integer", True),
    (FilePath, "nowhere.txt", "does not point to a file", False),
    (DirectoryPath, "/nowhere", "does not point to a directory", True),
    (NewPath, "/", "already exists", True),
    (Path, [], "it must be a path", True),
    (Color, "green", 'it must be one of "red", "blue"', True),
    (Level, 7, "it must be one of 1, 2", True),
    (Permission, 9, "it must be an integer from 0 to 3", True),
    (Literal["a", "b"], "c", 'it must be one of "a", "b"', True),
    (Pattern, "(", "valid regular expression", True),
    (complex, "x", "valid complex string", True),
    (Fraction, "x", "not a valid fraction", True),
    (ByteSize, "lots", "could not parse value and unit", True),
    (limited(int, gt=0), -1, "greater than 0", True),
    (limited(int, multiple_of=7), 8, "a multiple of 7", True),
    (Annotated[int, Strict()], "5", "it must be an integer", True),
    (limited(str, min_length=3, max_length=5), "ab", "a string of 3 to 5 characters", True),
    (Annotated[str, StringConstraints(strip_whitespace=True, min_length=2)], " a ", "at least 2 characters", True),
    (limited(list[int], min_length=2), [1], "at least 2 items", True),
    (list[int], ["a"], "x[0]: got", True),
    (dict[int, str], {"a": "b"}, "unable to parse string as an integer", False),
    (tuple[int, str], [1], "x[1]: required, but missing", True),
    (tuple[int, *tuple[str, ...]], 5, "it must be a list of an integer and more", True),
    (MariaDBDsn, "http://x", "scheme should be 'mariadb'", True),
    (ClickHouseDsn, "http://x", "scheme should be 'clickhouse", True),
    (SnowflakeDsn, "http://x", "scheme should be 'snowflake'", True),
    (CockroachDsn, "http://x", "scheme should be 'cockroachdb'", True),
    (Annotated[int, AfterValidator(sys.exit)], 3, "SystemExit: 3", False),
    (set[int], "a", "it must be a list", True),
    (frozenset[int], [[]], "it must be an integer", True),
    (deque[int], 5, "it must be a list", True),
    (limited(SecretStr, min_length=20), "hunter22", "at least 20 characters", True),
    (bytes, 5, "it must be", True),
    (bool, "perhaps", "it must be true or false", True),
    (int, 3.5, "it must be an integer", True),
    (float, "x", "it must be a number", True),
    (int | list[int], "x", "it must be an integer or a list", True),
    (None, 1, "it must be null", True),
]


def function_of(hint: Any) -> Callable[..., None]:
    def function(x: Any) -> None: ...

    function.__annotations__ = {"x": hint}
    return function


@pytest.mark.parametrize(
    ("hint", "sent", "reason", "has_example"), REFUSALS, ids=[f"{number}" for number in range(len(REFUSALS))]
)
def test_each_refusal_names_its_reason(
    hint: Any, sent: Any, reason: str, has_example: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parser = function_schema(function_of(hint)).arguments
    for is_text in (True, False):
        with pytest.raises(InvalidArgumentsError) as refused:
            parser.parse_json(json.dumps({"x": sent})) if is_text else parser.parse({"x": sent})
        message = str(refused.value)
        assert reason in message
        assert "****" not in message
        _, _, example = message.partition("for example with: ")
        assert bool(example) is has_example
        if example:
            parser.parse_json(example)


def test_an_argument_on_which_a_validator_fails_is_told_with_the_others() -> None:
    def search(name: Annotated[str, BeforeValidator(str.strip)], limit: int, *, deep: Inner) -> None: ...

    parser = function_schema(search).arguments
    with pytest.raises(InvalidArgumentsError) as refused:
        parser.parse_json('{"name": 5, "limit": "many", "deep": {"count": 9}, "more": 1}')
    lines = str(refused.value).split("\n")
    assert lines[0] == "The arguments have 4 problems:"
    assert "- name: got the number 5, but it must be a string." in lines
    assert '- limit: got the string "many", but it must be an integer.' in lines
    assert '- deep: got an object with "count". KeyError: 9.' in lines
    assert "- more: unknown. Leave it out." in lines


def look(odd: Odd) -> None: ...


def test_a_serializer_that_fails_leaves_the_values_as_they_are() -> None:
    parser = function_schema(look).arguments
    assert parser.dump_json(parser.parse({"odd": {"value": 1}})) == '{"odd":{"value":1}}'
