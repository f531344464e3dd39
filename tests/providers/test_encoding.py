"""JSON for the wire: encoded once, join_list, and never wrong."""

import gc
import json
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from toolkit import AssistantMessage, ChatRequest, ConfigurationError, ToolCall, ToolResult, UserMessage
from toolkit.chat import ImageBlock, TextBlock, ToolDefinition
from toolkit.providers.anthropic.encode import MessagesEncoder
from toolkit.providers.encoding import EncodedOnce, assemble_body, join_list, to_bytes
from toolkit.providers.google import GenerateEncoder
from toolkit.providers.openai.chat import ChatEncoder
from toolkit.providers.openai.responses import ResponsesEncoder


@dataclass(eq=False)
class Item:
    text: str


class Encoding:
    """Encodes items, and counts."""

    def __init__(self, most_bytes: int = 100_000) -> None:
        self.encoded: list[str] = []
        self.now = 0.0
        self.once = EncodedOnce(self.encode, size_of=len, most_bytes=most_bytes, clock=lambda: self.now)

    def encode(self, item: Item) -> bytes:
        self.encoded.append(item.text)
        return item.text.encode()


def test_an_item_is_encoded_once_and_an_equal_one_by_itself() -> None:
    encoding = Encoding()
    first, second = Item("a"), Item("b")
    assert encoding.once.all_of([first, second]) == [b"a", b"b"]
    assert encoding.once.all_of([first, second, Item("a"), first]) == [b"a", b"b", b"a", b"a"]
    assert encoding.encoded == ["a", "b", "a"]


def test_a_new_object_never_gets_the_encoding_of_one_that_is_gone() -> None:
    encoding = Encoding(most_bytes=10_000)
    for number in range(2_000):
        assert encoding.once.all_of([Item(str(number))]) == [str(number).encode()]


def test_what_was_not_used_lately_is_let_go_and_what_is_used_stays() -> None:
    encoding = Encoding(most_bytes=100)
    used, unused = Item("u" * 10), Item("x" * 10)
    gone = weakref.ref(unused)
    encoding.once.all_of([used, unused])
    del unused
    for number in range(50):
        encoding.once.all_of([used, Item(f"{number:010}")])
    gc.collect()
    assert gone() is None
    assert encoding.encoded.count(used.text) == 1


def test_short_items_count_as_the_objects_that_they_are() -> None:
    encoding = Encoding(most_bytes=2**20)
    items = [Item(str(number)) for number in range(5000)]
    alive = [weakref.ref(item) for item in items]
    while items:
        encoding.once.all_of([items.pop()])
    gc.collect()
    assert sum(item() is not None for item in alive) <= 1024


def test_what_no_request_of_the_last_minutes_used_is_dropped_by_the_next_one() -> None:
    encoding = Encoding()
    used, unused = Item("used"), Item("unused")
    gone = weakref.ref(unused)
    encoding.once.all_of([used, unused])
    del unused
    for seconds in range(0, 300, 30):
        encoding.now = seconds
        encoding.once.all_of([used])
    gc.collect()
    assert gone() is None
    assert encoding.encoded.count("used") == 1
    encoding.now = 1000
    encoding.once.all_of([Item("other")])
    used_gone = weakref.ref(used)
    del used
    gc.collect()
    assert used_gone() is None


def test_an_item_larger_than_what_may_be_kept_is_encoded_all_the_same() -> None:
    encoding = Encoding(most_bytes=10)
    large = [Item("x" * 50), Item("y" * 50)]
    for _ in range(3):
        assert encoding.once.all_of(large) == [b"x" * 50, b"y" * 50]


@dataclass(frozen=True)
class Body:
    name: str
    body: dict[str, Any]
    members: dict[str, bytes | list[bytes]]
    whole: str


@pytest.mark.parametrize(
    "case",
    [
        Body("nothing", {}, {}, "{}"),
        Body("only members", {}, {"a": b"1", "b": b"[2]"}, '{"a":1,"b":[2]}'),
        Body("only fields", {"a": 1, "b": None}, {}, '{"a":1}'),
        Body("both", {"a": 1}, {"b": b"2", "c": b"3"}, '{"a":1,"b":2,"c":3}'),
        Body("lists", {"a": 1}, {"b": [b"1", b"{}"], "c": [], "d": [b"2"]}, '{"a":1,"b":[1,{}],"c":[],"d":[2]}'),
        Body("a list and nothing else", {}, {"a": [b"1", b"2", b"3"]}, '{"a":[1,2,3]}'),
        Body("a field of the same name wins", {"a": 1}, {"a": b"2"}, '{"a":1}'),
        Body("a field of None takes the member away", {"a": None}, {"a": b"2"}, "{}"),
    ],
    ids=lambda case: case.name,
)
def test_a_body_is_put_together(case: Body) -> None:
    assert assemble_body(case.body, case.members) == case.whole.encode()


@pytest.mark.parametrize("items", [[], [1], [1, "two", {"three": 3}]])
def test_a_list_is_joined(items: list[Any]) -> None:
    assert json.loads(join_list([to_bytes(item, "an item") for item in items])) == items


def test_lone_surrogates_and_tuples_are_said_and_what_cannot_be_is_named() -> None:
    assert to_bytes({"a": ("\ud800", {1})}, "x") == b'{"a":["?",[1]]}'
    for wrong in ({"a": object()}, {"a": float("nan")}, b"bytes"):
        with pytest.raises(ConfigurationError, match="the request can't be written as JSON"):
            to_bytes(wrong, "the request")


@pytest.mark.parametrize("encoder", [ChatEncoder, ResponsesEncoder])
def test_a_growing_conversation_is_said_as_if_it_were_new(encoder: type[ChatEncoder] | type[ResponsesEncoder]) -> None:
    tools = [ToolDefinition(name="f", description="", parameters={"type": "object"})]
    kept = encoder(model="m", defaults={})
    messages: list[Any] = []
    for number in range(20):
        messages += [UserMessage(f"{number}"), AssistantMessage(f"reply {number}")]
        messages.append(ToolResult(f"c{number}", (ImageBlock(b"png"),) if number % 3 == 0 else "text"))
        request = ChatRequest(messages=messages, tools=tools)
        assert kept.encode(request, streams=True) == encoder(model="m", defaults={}).encode(request, streams=True)


ENCODERS: list[Callable[[ChatRequest], bytes]] = [
    partial(ChatEncoder(model="m", defaults={}).encode, streams=True),
    partial(ResponsesEncoder(model="m", defaults={}).encode, streams=True),
    partial(MessagesEncoder(model="m", defaults={}, cache="5m").encode, streams=True),
    partial(GenerateEncoder(model="m", defaults={}).body, settings={}),
]


@pytest.mark.parametrize(
    "encode",
    ENCODERS,
    ids=["chat", "responses", "anthropic", "google"],
)
def test_a_message_that_was_put_in_the_place_of_another_is_what_is_sent(
    encode: Callable[[ChatRequest], bytes],
) -> None:
    call = ToolCall("c", "f", "{}")
    messages: list[Any] = [UserMessage("card 4111"), AssistantMessage([call]), ToolResult("c", "card 4111")]
    request = ChatRequest(messages=messages, tools=[ToolDefinition(name="f", description="", parameters={})])
    assert encode(request).count(b"4111") == 2
    messages[0] = replace(messages[0], content="[redacted]")
    messages[2] = replace(messages[2], content=(TextBlock("[redacted]"),))
    assert b"4111" not in encode(request)
