"""The command ``replay``: what a cassette holds, or the same questions again with real tools and its answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from toolkit.chat.serialization import response_to_plain
from toolkit.cli.approving import Approver
from toolkit.cli.conversation import ModelConversation
from toolkit.cli.endings import CommandError, ExitCode
from toolkit.cli.progress import Steps
from toolkit.cli.screen import OutputFormat, Screen
from toolkit.cli.sources import SourceSettings, leave_out_unusable, open_sources, read_source
from toolkit.cli.terminal import Terminal
from toolkit.testing import ReplayProvider
from toolkit.testing.cassettes import RecordedExchange, read_exchanges

__all__ = ["replay_cassette"]


def replay_cassette(
    path: Path, words: Sequence[str], output: OutputFormat, settings: dict[str, Any], *, is_approved: bool
) -> int:
    """Write what was said, or ask it again with the tools of sources; return 1 where it goes another way."""
    screen, exchanges = Screen(output), read_exchanges(path)
    if not words:
        _write_exchanges(screen, exchanges)
        return ExitCode.DONE
    read, terminal = SourceSettings(**settings), Terminal()
    sources = [read_source(word, read) for word in words]
    provider = ReplayProvider(path, matching="lenient")
    instructions, questions = _find_questions(exchanges)
    if not questions:
        raise CommandError(f"{path} holds no question that could be asked again", ExitCode.MISUSED)

    async def main() -> int:
        with Steps() as steps:
            async with open_sources(sources, steps) as tools:
                approver = Approver(screen, terminal, "auto", tools.own, approves_all=is_approved)
                conversation = ModelConversation(
                    provider,
                    leave_out_unusable(tools.registry, screen.note),
                    screen=screen,
                    terminal=terminal,
                    approve=approver.decide,
                    instructions=instructions,
                )
                for question in questions:
                    screen.say(f"> {question}", "strong")
                    if not await conversation.ask(question):
                        return ExitCode.FAILED
        left = provider.unplayed
        if left:
            screen.note(f"{left} of {len(exchanges)} exchanges were not asked for again", "bad")
        return ExitCode.FAILED if left else ExitCode.DONE

    return terminal.run(main)


def _find_questions(exchanges: Sequence[RecordedExchange]) -> tuple[str, list[str]]:
    """Return the system prompt, and what the user said, in order."""
    instructions, questions = "", list[str]()
    for exchange in exchanges:
        said: list[str] = []
        for message in exchange.request["messages"]:
            if message["role"] == "system":
                instructions = str(message["content"])
            elif message["role"] == "user":
                said.append(_read_blocks(message["content"]))
        if len(said) > len(questions):
            questions.append(said[-1])
    return instructions, questions


def _write_exchanges(screen: Screen, exchanges: Sequence[RecordedExchange]) -> None:
    if screen.is_json:
        screen.document({"exchanges": [_describe_exchange(exchange) for exchange in exchanges]})
        return
    shown = 0
    for exchange in exchanges:
        messages: list[dict[str, Any]] = exchange.request["messages"]
        if len(messages) <= shown:  # another conversation
            shown = 0
        for message in messages[shown:]:
            if message["role"] != "assistant":
                _write_message(screen, message)
        shown = len(messages)
        if exchange.response is not None:
            _write_message(screen, response_to_plain(exchange.response)["message"])
            usage = exchange.response.usage
            screen.note(f"  {usage.input_tokens:,} tokens in, {usage.output_tokens:,} out")
        else:
            screen.say(f"! {(exchange.error or {}).get('message', 'the answer was left')}", "bad")


def _write_message(screen: Screen, message: dict[str, Any]) -> None:
    marks = {"user": "> ", "system": "# ", "tool": "  = ", "assistant": ""}
    text = _read_blocks(message["content"])
    if text:
        screen.paragraph(marks[message["role"]] + text, style="strong" if message["role"] == "user" else "plain")
    for call in _find_calls(message["content"]):
        screen.say(f"  {call['name']} {call['arguments']}", "call")


def _find_calls(content: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(content, str):
        yield from (block for block in content if block.get("type") == "call")


def _read_blocks(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join([block["text"] for block in content if block.get("type") == "text"])


def _describe_exchange(exchange: RecordedExchange) -> dict[str, Any]:
    """Return an exchange as JSON; the keys are part of the interface."""
    response = None if exchange.response is None else response_to_plain(exchange.response)
    return {
        "line": exchange.line,
        "method": exchange.method,
        "request": exchange.request,
        "response": response,
        "error": exchange.error,
    }
