"""The command ``chat``: questions from a person, a pipe or the command line, and the words that begin with a slash."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

from toolkit.chat import Message, Provider, dump_messages, load_messages
from toolkit.cli.approving import Approver, Asking
from toolkit.cli.conversation import ModelConversation, write_usage
from toolkit.cli.endings import CommandError, ExitCode
from toolkit.cli.listing import show_tools
from toolkit.cli.models import open_model, read_model
from toolkit.cli.progress import Steps
from toolkit.cli.questions import read_answer
from toolkit.cli.run_writing import writing_runs
from toolkit.cli.screen import OutputFormat, Screen
from toolkit.cli.sources import SourceSettings, leave_out_unusable, open_sources, read_source
from toolkit.cli.terminal import Terminal, WasInterruptedError
from toolkit.dataclass import dataclass
from toolkit.private_files import replace_private
from toolkit.suggestions import ask_whether_meant, find_similar

__all__ = ["ChatSettings", "chat_with_model"]

_SLASH_COMMANDS = {
    "/tools": "list the tools",
    "/usage": "tell what the conversation cost so far",
    "/save FILE": "write the transcript to a file, which --continue reads",
    "/undo": "forget the last question and all that followed it",
    "/help": "show this",
    "/quit": "end, as Ctrl-D does",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """The options of ``chat``.

    Args:
        model: The name of the model.
        url: Where a server that is compatible with it is; empty for the vendor's own.
        prompt: The one question; empty to read questions.
        instructions: The system prompt.
        asking: The calls that are asked about.
        is_approved: True where nobody is asked about calls.
        transcript: A file that `/save` wrote, to go on from; None begins anew.
        cassette: Where the exchanges with the model are recorded; None records none.
        log: Where the run is written down; None writes nothing.
        output: The form of standard output: text or JSON.
    """

    model: str
    url: str = ""
    prompt: str = ""
    instructions: str = ""
    asking: Asking = "auto"
    is_approved: bool = False
    transcript: Path | None = None
    cassette: Path | None = None
    log: Path | None = None
    output: OutputFormat = "text"


def chat_with_model(words: Sequence[str], chat: ChatSettings, settings: dict[str, Any]) -> int:
    """Talk to a model that has the tools of all sources; return 0 where each question was answered."""
    screen, terminal, read = Screen(chat.output), Terminal(), SourceSettings(**settings)
    sources = [read_source(word, read) for word in words]
    provider = read_model(chat.model, chat.url, read.timeout)
    before = [] if chat.transcript is None else _read_transcript(chat.transcript)
    asked = provider if chat.cassette is None else _record_exchanges(provider, chat.cassette)

    async def main() -> int:
        async with AsyncExitStack() as opened:
            with Steps() as steps:
                tools = await opened.enter_async_context(open_sources(sources, steps))
                await opened.enter_async_context(open_model(provider, steps))
            approver = Approver(screen, terminal, chat.asking, tools.own, approves_all=chat.is_approved)
            conversation = ModelConversation(
                asked,
                leave_out_unusable(tools.registry, screen.note),
                screen=screen,
                terminal=terminal,
                approve=approver.decide,
                instructions=chat.instructions,
                messages=before,
                middleware=opened.enter_context(writing_runs(chat.log)),
            )
            return await _Session(conversation, screen, terminal).run(chat.prompt)

    with ExitStack() as redirected:
        if screen.is_json or not terminal.is_interactive:
            redirected.enter_context(redirect_stdout(sys.stderr))
        return terminal.run(main)


def _record_exchanges(provider: Provider, cassette: Path) -> Provider:
    from toolkit.testing import RecordingProvider  # noqa: PLC0415 - few conversations are recorded

    return RecordingProvider(provider, cassette)


def _read_transcript(path: Path) -> list[Message]:
    try:
        return load_messages(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CommandError(f"{path} is no transcript that /save wrote: {error}", ExitCode.MISUSED) from error


class _Session:
    """Reads questions until there are no more."""

    def __init__(self, conversation: ModelConversation, screen: Screen, terminal: Terminal) -> None:
        self._conversation, self._screen, self._terminal = conversation, screen, terminal
        self._saved: Path | None = None

    async def run(self, prompt: str) -> int:
        if not prompt and not self._terminal.is_interactive:
            prompt = sys.stdin.read().strip()
            if not prompt:
                raise CommandError(
                    "nothing was asked: give a question by --prompt or on standard input", ExitCode.MISUSED
                )
        if prompt:
            is_answered = await self._conversation.ask(prompt)
            is_interrupted = self._conversation.is_interrupted
            return ExitCode.DONE if is_answered else ExitCode.INTERRUPTED if is_interrupted else ExitCode.FAILED
        with self._terminal.on_interrupt(int):  # at the prompt it ends nothing but the line
            await self._hold_conversation()
        return ExitCode.DONE

    async def _hold_conversation(self) -> None:
        count = len(self._conversation.registry)
        self._screen.note(f"{count} tool{'' if count == 1 else 's'}; /help lists what else you may say")
        was_interrupted = False
        while True:
            try:
                line = await self._terminal.ask(lambda: read_answer("> "))
            except EOFError:
                break
            except WasInterruptedError:
                self._screen.note("" if was_interrupted else "\nCtrl-C again, Ctrl-D or /quit ends")
                if was_interrupted:
                    break
                was_interrupted = True
                continue
            was_interrupted = False
            if line == "/quit":
                break
            if line.startswith("/"):
                self._obey_word(line)
            elif line:
                await self._conversation.ask(line)
        self._screen.note(write_usage(self._conversation.usage, self._conversation.requests))

    def _obey_word(self, line: str) -> None:
        command, _, rest = line.partition(" ")
        conversation, screen = self._conversation, self._screen
        match command:
            case "/tools":
                show_tools(screen, conversation.registry)
            case "/usage":
                screen.note(write_usage(conversation.usage, conversation.requests))
            case "/save":
                self._save_transcript(rest.strip())
            case "/undo":
                screen.note("forgotten" if conversation.undo() else "there is nothing to undo")
            case "/help":
                width = max(map(len, _SLASH_COMMANDS))
                for name, meaning in _SLASH_COMMANDS.items():
                    screen.note(f"{name:{width}}  {meaning}")
            case _:
                names = [name.partition(" ")[0] for name in _SLASH_COMMANDS]
                question = ask_whether_meant(find_similar(command, names, most=1))
                screen.note(f"there is no {command}; {question or 'there are ' + ', '.join(names)}", "bad")

    def _save_transcript(self, name: str) -> None:
        path = Path(name).expanduser() if name else self._saved
        if path is None:
            self._screen.note("name a file: /save conversation.json", "bad")
            return
        if path.exists() and path != self._saved:
            self._screen.note(f"{path} is there already, and is left as it is: name another", "bad")
            return
        text = dump_messages(self._conversation.messages, indent=2)
        try:
            replace_private(path, text)
        except OSError as error:
            self._screen.note(f"it can't be saved: {error}", "bad")
            return
        self._saved = path
        self._screen.note(f"saved {len(self._conversation.messages)} messages to {path}")
