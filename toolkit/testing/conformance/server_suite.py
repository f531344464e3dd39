"""The rules for every adapter that speaks HTTP."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import anyio
import anyio.to_thread
import pytest

from toolkit.chat import (
    ChatResponse,
    Provider,
    TextBlock,
)
from toolkit.errors import (
    BadResponseError,
    ContextTooLongError,
    ProviderAuthError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitedError,
)
from toolkit.loop.config import ProviderRetryConfig
from toolkit.testing.conformance.provider_suite import (
    ADD,
    ADD_MORE,
    KEY,
    PATIENCE,
    TEXT,
    TOOLS,
    Peer,
    ProviderConformance,
    Wire,
    WirePeer,
    both_ways,
    closed,
    gist,
    hear_answer,
    hear_first_word,
    request_of,
    response_of,
    run_loop,
)
from toolkit.testing.events import EventCollector
from toolkit.testing.loopback import Answer, Hang, Server, closed_port, serving
from toolkit.testing.transcripts import check_transcript

__all__ = ["ServerConformance"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """A status of 400 or above, and the error that it is."""

    status: int
    kind: type[ProviderError]
    message: str = "That can't be done"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    is_retryable: bool = False
    retry_after: float | None = None


_REFUSALS = {
    "400": _Refusal(status=400, kind=ProviderError),
    "401": _Refusal(status=401, kind=ProviderAuthError, message=f"Wrong key {KEY}"),
    "403": _Refusal(status=403, kind=ProviderAuthError),
    "404": _Refusal(status=404, kind=ProviderError, message="No such model"),
    "429": _Refusal(status=429, kind=RateLimitedError, is_retryable=True),
    "429 with Retry-After": _Refusal(
        status=429, kind=RateLimitedError, headers={"retry-after": "7"}, is_retryable=True, retry_after=7
    ),
    "500": _Refusal(status=500, kind=ProviderError, is_retryable=True),
    "503": _Refusal(status=503, kind=ProviderError, is_retryable=True),
    "504": _Refusal(status=504, kind=ProviderTimeoutError, is_retryable=True),
    "too long": _Refusal(
        status=400, kind=ContextTooLongError, message="prompt is too long: 9 tokens exceed the context window of 8"
    ),
}
_HTML = b"<!doctype html><html><body>Welcome!</body></html>"


class ServerConformance(ProviderConformance):
    """The rules for every adapter that speaks HTTP; inherit it as a ``Test...`` class with a fixture ``wire``.

    Attributes:
        gone_within: Seconds after which a connection that should be closed counts as left open.
    """

    gone_within: ClassVar[float] = 10.0

    @pytest.fixture
    def wire(self) -> Wire:
        """The format; each test takes a new one."""
        raise NotImplementedError("give the class a fixture `wire` that returns how the format words its answers")

    @pytest.fixture
    def server(self) -> Generator[Server]:
        """The server on loopback that the adapter speaks to."""
        with serving() as running:
            yield running

    @pytest.fixture
    def peer(self, wire: Wire, server: Server) -> Peer:
        """The server, speaking the format."""
        return WirePeer(wire, server)

    @pytest.mark.parametrize("name", _REFUSALS)
    async def test_a_refusal_says_what_and_whether_to_try_again(
        self, wire: Wire, server: Server, peer: Peer, name: str
    ) -> None:
        """The class, the status, the server's words and its time to wait; never the key, and no second request."""
        refusal = _REFUSALS[name]
        body = wire.refusal(refusal.status, refusal.message)
        server.answers[:] = [Answer(body, status=refusal.status, headers=refusal.headers)]
        async with closed(peer.provider) as provider:
            for streams in (False, True):
                with pytest.raises(refusal.kind) as caught:
                    await hear_answer(provider, request_of(), streams=streams)
                error = caught.value
                assert type(error) is refusal.kind
                assert (error.status, error.is_retryable) == (refusal.status, refusal.is_retryable)
                assert error.retry_after == refusal.retry_after
                assert refusal.message.removesuffix(KEY) in str(error)
                _assert_no_key(error)
        assert len(server.requests) == 2, "the loop tries again, the adapter does not"

    @pytest.mark.parametrize("body", [_HTML, b'{"id": ', b"[1]"], ids=["HTML", "half of JSON", "a list"])
    async def test_what_is_no_answer_is_a_bad_response(self, server: Server, peer: Peer, body: bytes) -> None:
        """A proxy's page, and whatever else comes with a status of 200."""
        whole = Answer(body, content_type="text/html" if body == _HTML else "application/json")
        in_pieces = whole if body == _HTML else Answer(pieces=[b"data: " + body + b"\n\n"])
        server.answers[:] = [whole, in_pieces]
        async with closed(peer.provider) as provider:
            with pytest.raises(BadResponseError) as caught:
                await hear_answer(provider, request_of(), streams=False)
            _assert_no_key(caught.value)
            with pytest.raises(ProviderError) as heard:
                await hear_answer(provider, request_of(), streams=True)
            _assert_no_key(heard.value)
        # Pieces of JSON that say nothing are a stream that has ended too early, which may be better next time.
        assert type(heard.value) is BadResponseError or (body == b"[1]" and heard.value.is_retryable)

    @pytest.mark.parametrize("is_cut", [False, True], ids=["ended", "cut"])
    async def test_a_stream_that_breaks_off_is_an_error_and_never_a_short_answer(
        self, wire: Wire, server: Server, peer: Peer, is_cut: bool
    ) -> None:
        """Wherever it breaks off: in a text, within arguments, before the end is told."""
        response = response_of(TextBlock("Let me see."), ADD)
        pieces = wire.pieces(response)
        async with closed(peer.provider) as provider:
            for count in range(len(pieces)):
                server.answers[:] = [Answer(pieces=pieces[:count], is_cut=is_cut)]
                heard = await _answer_unless_it_breaks_off(provider)
                if heard is not None:
                    assert count > len(pieces) / 2, "so little can't be the whole"
                    assert gist(heard.message) == gist(response.message)

    @both_ways
    async def test_no_server_is_an_error_that_may_pass(self, wire: Wire, streams: bool) -> None:
        """The error names the address."""
        nowhere = Server(f"http://127.0.0.1:{closed_port()}/v1")
        async with closed(wire.provider(nowhere)) as provider:
            with pytest.raises(ProviderError, match=r"127\.0\.0\.1") as caught:
                await hear_answer(provider, request_of(), streams=streams)
        assert caught.value.is_retryable
        _assert_no_key(caught.value)

    @both_ways
    async def test_a_timeout_is_an_error_and_closes_the_connection(
        self, server: Server, peer: Peer, streams: bool
    ) -> None:
        """The request's own time counts, and the server is told to stop."""
        hang = await _run_out_of_time(server, peer, (), streams=streams)
        assert await anyio.to_thread.run_sync(hang.has_left.wait, self.gone_within)

    async def test_a_timeout_counts_for_the_whole_stream(self, wire: Wire, server: Server, peer: Peer) -> None:
        """A server that falls silent in the middle is late, too."""
        hang = await _run_out_of_time(server, peer, wire.pieces(TEXT)[:3], streams=True)
        assert await anyio.to_thread.run_sync(hang.has_left.wait, self.gone_within)

    @pytest.mark.parametrize("where", ["before the answer", "in the middle"])
    @both_ways
    async def test_cancelling_closes_the_connection(
        self, wire: Wire, server: Server, peer: Peer, streams: bool, where: str
    ) -> None:
        """The server learns at once that nobody listens any more."""
        pieces = wire.pieces(TEXT)[:3] if where == "in the middle" else ()
        hang = Hang(pieces)
        server.answers[:] = [hang]
        async with closed(peer.provider) as provider:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(hear_answer, provider, request_of(), streams=streams))
                assert await anyio.to_thread.run_sync(hang.has_come.wait, PATIENCE)
                tasks.cancel_scope.cancel()
            assert await anyio.to_thread.run_sync(hang.has_left.wait, self.gone_within)

    async def test_leaving_a_stream_closes_the_connection(self, wire: Wire, server: Server, peer: Peer) -> None:
        """A caller that leaves after the first word does not pay for the others."""
        hang = Hang(wire.pieces(TEXT)[:-1])
        server.answers[:] = [hang]
        async with closed(peer.provider) as provider:
            await hear_first_word(provider)
            assert await anyio.to_thread.run_sync(hang.has_left.wait, self.gone_within)

    @both_ways
    async def test_after_an_error_the_next_request_is_answered(
        self, wire: Wire, server: Server, peer: Peer, streams: bool
    ) -> None:
        """A loop that tries again gets over what passes, and runs nothing twice."""
        refused = Answer(wire.refusal(503, "Overloaded"), status=503)
        cut = Answer(pieces=wire.pieces(response_of(ADD))[:2], is_cut=True)
        say = partial(_word_answer, wire, streams=streams)
        server.answers[:] = [
            *[refused, say(response_of(ADD))],
            *([cut] if streams else [refused]),
            say(TEXT),
        ]
        events = EventCollector()
        retry = ProviderRetryConfig(max_retries=2, initial_backoff=0.001, max_backoff=0.01)
        async with closed(peer.provider) as provider:
            with anyio.fail_after(PATIENCE):
                await run_loop(provider, events, streams=streams, retry=retry)
        check_transcript(events.result.messages, events.events)
        assert events.result.text == TEXT.text
        assert events.started == ["call_1"]
        assert len(server.requests) == 4

    @both_ways
    async def test_an_error_that_ends_a_loop_has_the_transcript(
        self, wire: Wire, server: Server, peer: Peer, streams: bool
    ) -> None:
        """The work that was done before it is not lost."""
        server.answers[:] = [
            _word_answer(wire, response_of(ADD, ADD_MORE), streams=streams),
            Answer(wire.refusal(400, "No more"), status=400),
        ]
        events = EventCollector()
        async with closed(peer.provider) as provider:
            with pytest.raises(ProviderError) as caught, anyio.fail_after(PATIENCE):
                await run_loop(provider, events, streams=streams)
        assert [message.role for message in caught.value.messages] == ["user", "assistant", "tool", "tool"]
        check_transcript(caught.value.messages, events.events)

    async def test_the_key_is_sent_and_shown_nowhere(self, server: Server, peer: Peer) -> None:
        """It is in a header, and neither in the body nor in what the provider says of itself."""
        peer.say(TEXT, streams=False)
        async with closed(peer.provider) as provider:
            await hear_answer(provider, request_of(), streams=False)
        assert KEY in str(server.headers[0])
        assert KEY not in json.dumps(server.requests[0])
        assert KEY not in f"{peer.provider!r} {peer.provider!s}"


async def _run_out_of_time(server: Server, peer: Peer, pieces: Sequence[bytes], *, streams: bool) -> Hang:
    async with closed(peer.provider) as provider:
        for seconds in (0.1, 1.0, 10.0):
            hang = Hang(pieces)
            server.answers[:] = [hang]
            with pytest.raises(ProviderTimeoutError) as caught:
                await hear_answer(provider, request_of(timeout=seconds), streams=streams)
            assert caught.value.is_retryable
            if hang.has_come.is_set():  # a busy machine may take longer to send the request
                break
    return hang


async def _answer_unless_it_breaks_off(provider: Provider) -> ChatResponse | None:
    try:
        return await hear_answer(provider, request_of(tools=TOOLS), streams=True)
    except ProviderError as error:
        if not error.is_retryable:
            raise
        return None


def _word_answer(wire: Wire, response: ChatResponse, *, streams: bool) -> Answer:
    return Answer(pieces=wire.pieces(response)) if streams else Answer(wire.whole(response))


def _assert_no_key(error: BaseException | None) -> None:
    while error is not None:
        assert KEY not in f"{error!s} {error!r}", "an error shows the key"
        error = error.__cause__
