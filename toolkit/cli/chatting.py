"""The commands that use models: ``chat``, ``runs replay`` and ``eval``."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, redirect_stdout
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from toolkit.calls.approval import ApprovalHook
from toolkit.calls.events import (
    ToolCallRefused,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    ToolProgress,
)
from toolkit.chat import (
    Message,
    Provider,
    ReasoningDelta,
    TextDelta,
    Usage,
    UserMessage,
    dump_messages,
    load_messages,
)
from toolkit.chat.provider import response_to_plain
from toolkit.cli.run_commands import log_runs, show_link
from toolkit.cli.screen import Approver, Asking, Command, ExitCode, MisuseError, Screen, Steps, WasInterruptedError
from toolkit.cli.sources import OpenedTools, leave_out_unusable, open_model, read_model, run_with_tools
from toolkit.cli.tool_commands import count_tools, show_tools
from toolkit.conversations import Conversations, MemoryStore
from toolkit.dataclass import dataclass
from toolkit.errors import ToolkitError
from toolkit.evaluation import (
    ALL_KINDS,
    Candidate,
    CandidateTrials,
    EvaluationSummary,
    TrialFile,
    TrialSettings,
    load_tasks,
    run_candidates,
    summarize_trials,
)
from toolkit.events import dump_event
from toolkit.foreign_text import shorten_to_line
from toolkit.loop.config import ToolLoopConfig
from toolkit.loop.events import IterationStart, LoopEvent, ProviderRetried
from toolkit.loop.middleware import Middleware
from toolkit.loop.outcome import (
    Aborted,
    Cancelled,
    Complete,
    LoopDetected,
    MaxIterations,
    TerminationReason,
    UsageLimit,
)
from toolkit.private_files import replace_private
from toolkit.providers.catalogue import ask_in_way
from toolkit.run_log.entries import join_texts
from toolkit.suggestions import ask_whether_meant, find_similar
from toolkit.testing import RecordingProvider, ReplayProvider
from toolkit.testing.cassettes import RecordedExchange, read_exchanges
from toolkit.tools.registry import ToolRegistry

_MOST_TURNS = 50
_THREAD = "chat"
_LONGEST_LINE_SHOWN = 400
_shorten_line = partial(shorten_to_line, longest=_LONGEST_LINE_SHOWN)
_SLASH_COMMANDS = {
    "/tools": "list the tools",
    "/usage": "show the tokens and cost so far",
    "/save FILE": "write the transcript to a file, which --continue reads",
    "/undo": "remove the last question and everything after it",
    "/help": "show this",
    "/quit": "end, as Ctrl-D does",
}


def chat_with_model(
    command: Command,
    sources: Sequence[str],
    model: str,
    url: str,
    *,
    prompt: str,
    instructions: str,
    asking: Asking,
    is_approved: bool,
    transcript: Path | None,
    cassette: Path | None,
    is_web: bool,
    port: int,
    log: Path | None,
) -> int:
    """Chat with a model that has the tools of all sources; return 0 if each question was answered."""
    if is_web and prompt:
        raise MisuseError("--prompt asks in the terminal, and --web on a page: give one of them")
    if port and not is_web:
        raise MisuseError("--port is for --web")
    screen = command.screen
    provider = read_model(model, url, command.timeout)
    before = [] if transcript is None else _read_transcript(transcript)
    asked = provider if cassette is None else RecordingProvider(provider, cassette)

    async def hold_conversation(tools: OpenedTools) -> int:
        approver = Approver(command, asking, tools.own, approves_all=is_approved)
        registry = leave_out_unusable(tools, screen.note)
        with log_runs(log) as middleware:
            config = _make_config(approver.put_off if is_web else approver.decide, middleware, keep_partial=not is_web)
            async with open_model(provider, tools.steps), Conversations(MemoryStore()) as conversations:
                if before:
                    async with conversations.turn(_THREAD) as turn:
                        await turn.save(before)
                chat = _Chat(conversations, asked, registry, tools.ctx, config, instructions)
                if is_web:
                    return await _serve_page(chat, port, partial(show_link, screen))
                return await _Conversation(chat, command).run(prompt)

    with ExitStack() as redirected:
        if screen.is_json or not command.terminal.is_interactive:
            redirected.enter_context(redirect_stdout(sys.stderr))
        return run_with_tools(command, sources, hold_conversation)


@dataclass(frozen=True, slots=True)
class _Chat:
    """A conversation, and what its turns need."""

    conversations: Conversations
    provider: Provider
    registry: ToolRegistry[Any]
    ctx: Any
    config: ToolLoopConfig[None]
    instructions: str


def _make_config(
    approve: ApprovalHook, middleware: Sequence[Middleware[Any]] = (), *, keep_partial: bool = True
) -> ToolLoopConfig[None]:
    return ToolLoopConfig(
        max_iterations=_MOST_TURNS, on_tool_call=approve, keep_partial=keep_partial, middleware=middleware
    )


async def _serve_page(chat: _Chat, port: int, on_ready: Callable[[str], None]) -> int:
    """Serve a page with one conversation until Ctrl-C."""
    from toolkit.ui.streams import InterfaceStreams, serve_chat  # an extra

    streams: InterfaceStreams[Any] = InterfaceStreams(
        chat.conversations,
        chat.provider,
        chat.registry,
        conversation_for=lambda _request, _thread: _THREAD,
        context_for=lambda _request, _posted: chat.ctx,
        config=chat.config,
        system_prompt=chat.instructions,
        error_text=str,
    )
    await serve_chat(streams, port, on_ready=on_ready)
    return ExitCode.DONE


def _read_transcript(path: Path) -> list[Message]:
    try:
        return load_messages(path.read_bytes())
    except (OSError, ValueError) as error:
        raise MisuseError(f"{path} is no transcript that /save wrote: {error}") from error


class _Conversation:
    """Reads questions and slash commands in a terminal, and shows the turns as they happen."""

    def __init__(self, chat: _Chat, command: Command) -> None:
        self._chat, self._screen, self._terminal = chat, command.screen, command.terminal
        self._usage: Usage | None = None
        self._requests = 0
        self._is_interrupted = False  # by Ctrl-C in the last turn
        self._saved: Path | None = None

    async def run(self, prompt: str) -> ExitCode:
        """Ask the one question of the command line, or those of a person until the input ends."""
        if not prompt and not self._terminal.is_interactive:
            prompt = sys.stdin.read().strip()
            if not prompt:
                raise MisuseError("nothing was asked: give a question by --prompt or on standard input")
        if prompt:
            is_answered = await self.ask(prompt)
            return ExitCode.DONE if is_answered else ExitCode.INTERRUPTED if self._is_interrupted else ExitCode.FAILED
        self._screen.note(f"{count_tools(len(self._chat.registry))}; /help lists the other commands")
        with self._terminal.on_interrupt(int):  # at the prompt it ends the line alone
            await self._read_lines()
        self._screen.note(self._describe_usage())
        return ExitCode.DONE

    async def _read_lines(self) -> None:
        was_interrupted = False
        while True:
            try:
                line = await self._terminal.ask("> ")
            except EOFError:
                return
            except WasInterruptedError:
                self._screen.note("" if was_interrupted else "\nCtrl-C again, Ctrl-D or /quit ends")
                if was_interrupted:
                    return
                was_interrupted = True
                continue
            was_interrupted = False
            if line == "/quit":
                return
            if line.startswith("/"):
                await self._run_slash_command(line)
            elif line:
                await self.ask(line)

    async def _run_slash_command(self, line: str) -> None:
        command, _, rest = line.partition(" ")
        screen = self._screen
        match command:
            case "/tools":
                show_tools(screen, self._chat.registry)
            case "/usage":
                screen.note(self._describe_usage())
            case "/save":
                screen.note(self._save_transcript(rest.strip(), await self._read_messages()))
            case "/undo":
                screen.note("forgotten" if await self._undo_question() else "there is nothing to undo")
            case "/help":
                width = max(map(len, _SLASH_COMMANDS))
                for name, meaning in _SLASH_COMMANDS.items():
                    screen.note(f"{name:{width}}  {meaning}")
            case _:
                names = [name.partition(" ")[0] for name in _SLASH_COMMANDS]
                question = ask_whether_meant(find_similar(command, names, most=1))
                screen.note(f"there is no {command}; {question or 'there are ' + ', '.join(names)}", "bad")

    def _save_transcript(self, name: str, messages: Sequence[Message]) -> str:
        path = Path(name).expanduser() if name else self._saved
        if path is None:
            return "name a file: /save conversation.json"
        if path.exists() and path != self._saved:
            return f"{path} is there already, and is left as it is: name another"
        try:
            replace_private(path, dump_messages(messages, indent=2))
        except OSError as error:
            return f"it can't be saved: {error}"
        self._saved = path
        return f"saved {len(messages)} messages to {path}"

    async def _read_messages(self) -> Sequence[Message]:
        return (await self._chat.conversations.get(_THREAD)).messages

    async def ask(self, question: str) -> bool:
        """Run a turn, and return True if it ended with the model's answer.

        Ctrl-C ends it. However it ends, the question stays in the transcript, with the answer and calls so far.
        """
        chat, problem = self._chat, ""
        async with chat.conversations.turn(_THREAD, ctx=chat.ctx) as turn:
            stream = turn.stream(
                chat.provider, chat.registry, question, config=chat.config, system_prompt=chat.instructions
            )
            try:
                with self._terminal.on_interrupt(stream.cancel):
                    async for event in stream:
                        self._requests += isinstance(event, IterationStart)
                        self._show_event(event)
            except ToolkitError as error:
                problem = " ".join(str(error).split())
        self._usage = stream.usage if self._usage is None else self._usage + stream.usage
        self._screen.end_line()
        if problem:
            if not self._screen.is_json:  # there `Failed` was written
                self._screen.note(problem, "bad")
            return False
        result = stream.result
        self._is_interrupted = isinstance(result.reason, Cancelled)
        ending = _describe_ending(result.reason)
        if ending or result.cut_notice:
            self._screen.note(ending or result.cut_notice)
        return not ending

    async def _undo_question(self) -> bool:
        """Remove the last question and everything after it; return False if there is none."""
        messages = await self._read_messages()
        questions = [index for index, message in enumerate(messages) if isinstance(message, UserMessage)]
        if questions:
            await self._chat.conversations.truncate(_THREAD, questions[-1])
        return bool(questions)

    def _describe_usage(self) -> str:
        """Describe the usage of all turns, undone ones included."""
        usage = self._usage
        if usage is None:
            return "nothing was asked yet"
        cost = "" if usage.cost is None else f", ${usage.cost:.4f}"
        return f"{self._requests} requests, {usage.input_tokens:,} tokens in, {usage.output_tokens:,} out{cost}"

    def _show_event(self, event: LoopEvent) -> None:
        screen = self._screen
        if screen.is_json:
            screen.document(dump_event(event), is_line=True)
            return
        match event:
            case TextDelta(text):
                screen.stream(text)
            case ReasoningDelta(text) if screen.is_terminal:
                screen.stream(text, "faint")
            case _:
                _note_event(screen, event)


def _note_event(screen: Screen, event: LoopEvent) -> None:
    match event:
        case ToolExecutionStart():
            screen.note(f"  {event.tool_name} {_shorten_line(event.arguments_json)}", "call")
        case ToolExecutionEnd(result=result):
            ending = f"  = {_shorten_line(result.text)}  ({event.duration:.2f} s)"
            screen.note(ending, "bad" if result.is_error else "good")
        case ToolCallRefused(result=result):
            screen.note(f"  {event.tool_name} was not run: {_shorten_line(result.text)}", "bad")
        case ToolProgress(text=text):
            screen.note(f"  {event.tool_name}: {_shorten_line(text)}")
        case ToolExecutionUpdate(output=output) if screen.is_terminal:
            screen.note(f"  {event.tool_name}: {_shorten_line(output.text[-_LONGEST_LINE_SHOWN:])}")
        case ProviderRetried(delay=delay, error=error):
            screen.note(f"the model could not be asked, and is again in {delay:.0f} s: {_shorten_line(str(error))}")
        case LoopDetected():
            screen.note(f"the model has called {event.tool_name} {event.count} times in the same way")
        case _:
            pass


def _describe_ending(reason: TerminationReason) -> str:
    """Describe how a turn ended; "" for an answer."""
    match reason:
        case Complete():
            return ""
        case Cancelled() | Aborted():
            return "the turn was ended; the conversation continues"
        case MaxIterations(limit):
            return f"stopped after {limit} turns with tools: say 'go on' if it should"
        case UsageLimit(limit):
            return f"stopped: the limit of {limit} is reached"
        case _:
            return f"the turn ended: {reason.kind.replace('_', ' ')}"


def replay_cassette(command: Command, cassette: Path, sources: Sequence[str], *, is_approved: bool) -> int:
    """Write a recording, or ask its questions again with the tools of sources; return 1 if the run differs."""
    screen, exchanges = command.screen, read_exchanges(cassette)
    if not sources:
        _write_exchanges(screen, exchanges)
        return ExitCode.DONE
    provider = ReplayProvider(cassette, matching="lenient")
    instructions, questions = _find_questions(exchanges)
    if not questions:
        raise MisuseError(f"{cassette} holds no question that could be asked again")

    async def ask_again(tools: OpenedTools) -> int:
        approver = Approver(command, "auto", tools.own, approves_all=is_approved)
        registry = leave_out_unusable(tools, screen.note)
        config = _make_config(approver.decide)
        chat = _Chat(Conversations(MemoryStore()), provider, registry, None, config, instructions)
        conversation = _Conversation(chat, command)
        for question in questions:
            screen.say(f"> {question}", "strong")
            if not await conversation.ask(question):
                return ExitCode.FAILED
        left = provider.unplayed
        if left:
            screen.note(f"{left} of {len(exchanges)} exchanges were not asked for again", "bad")
        return ExitCode.FAILED if left else ExitCode.DONE

    return run_with_tools(command, sources, ask_again)


def _find_questions(exchanges: Sequence[RecordedExchange]) -> tuple[str, list[str]]:
    """Return the system prompt, and the user's questions, in order."""
    instructions, questions = "", list[str]()
    for exchange in exchanges:
        messages = exchange.request["messages"]
        instructions = next((str(each["content"]) for each in messages if each["role"] == "system"), instructions)
        asked = [join_texts(each["content"]) for each in messages if each["role"] == "user"]
        if len(asked) > len(questions):
            questions.append(asked[-1])
    return instructions, questions


def _write_exchanges(screen: Screen, exchanges: Sequence[RecordedExchange]) -> None:
    if screen.is_json:
        names = ("line", "method", "request", "error")  # which are part of the interface, with the response
        plain = [{name: getattr(each, name) for name in names} for each in exchanges]
        responses = [None if each.response is None else response_to_plain(each.response) for each in exchanges]
        rows = [{**row, "response": response} for row, response in zip(plain, responses, strict=True)]
        screen.document({"exchanges": rows})
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
            screen.say(f"! {(exchange.error or {}).get('message', 'the answer was abandoned')}", "bad")


def _write_message(screen: Screen, message: dict[str, Any]) -> None:
    marks = {"user": "> ", "system": "# ", "tool": "  = ", "assistant": ""}
    content, text = message["content"], join_texts(message["content"])
    if text:
        screen.paragraph(marks[message["role"]] + text, style="strong" if message["role"] == "user" else "plain")
    for block in () if isinstance(content, str) else content:
        if block.get("type") == "call":
            screen.say(f"  {block['name']} {block['arguments']}", "call")


def evaluate_tools(
    command: Command,
    sources: Sequence[str],
    tasks: Path,
    models: Sequence[str],
    url: str,
    *,
    ways: Sequence[str],
    per_class: int | None,
    results: Path | None,
    runs_tools: bool,
    max_tokens: int,
    max_turns: int,
    task_timeout: float,
    own_temperature: bool,
) -> int:
    """Run the missing trials and write the figures, also after Ctrl-C; return 1 if a model was given up."""
    screen = command.screen
    how = TrialSettings(runs_tools=runs_tools, max_tokens=max_tokens, max_turns=max_turns, timeout=task_timeout)
    if own_temperature:
        how = replace(how, temperature=None, seed=None)
    loaded = load_tasks(tasks)
    loaded = loaded.sample(per_class) if per_class else loaded
    shown, outcomes = Steps(), list[CandidateTrials]()
    candidates = _make_candidates(models, ways, url, command.timeout, shown)
    stored = TrialFile(results)

    def show_progress(candidate: Candidate, done: int, total: int) -> None:
        shown.begin(candidate.label, total=total)
        shown.advance(done, total)

    async def run_tasks(tools: OpenedTools) -> int:
        registry = leave_out_unusable(tools, screen.note)
        with shown:
            await run_candidates(
                candidates,
                loaded,
                registry,
                how,
                stored=stored,
                outcomes=outcomes,
                on_progress=show_progress,
                ctx=tools.ctx,
            )
        return ExitCode.FAILED if any(outcome.problem for outcome in outcomes) else ExitCode.DONE

    try:
        with redirect_stdout(sys.stderr):  # by tools that print
            code = run_with_tools(command, sources, run_tasks)
    except Exception:
        if not screen.is_json:  # there the error is the one document
            _write_figures(screen, outcomes, loaded.kinds)
        raise
    _write_figures(screen, outcomes, loaded.kinds)
    return code


def _make_candidates(
    models: Sequence[str], ways: Sequence[str], url: str, timeout: float, steps: Steps
) -> list[Candidate]:
    """Return each model in each way; Python modules that hold models are imported here."""
    candidates: list[Candidate] = []
    for model in dict.fromkeys(models):
        # A local provider has its own guided mode.
        prefix, colon, rest = model.partition(":")
        label = f"{prefix}{colon}{Path(rest).stem}" if rest.endswith(".gguf") else model  # short enough for tables
        is_local = prefix.strip().lower() == "local"
        native = read_model(model, url, timeout, **({"calling": "native"} if is_local and ways else {}))
        for way in dict.fromkeys(ways or ("",)):
            is_guided = is_local and way == "guided"
            provider = read_model(model, url, timeout, calling="guided") if is_guided else native
            candidates.append(Candidate(model=label, way=way, open=partial(_open_way, provider, way, steps)))
    return candidates


@asynccontextmanager
async def _open_way(provider: Provider, way: str, steps: Steps) -> AsyncGenerator[Provider]:
    async with open_model(provider, steps) as opened:
        yield ask_in_way(opened, way, str(getattr(opened, "model", ""))) if way else opened


def _write_figures(screen: Screen, outcomes: Sequence[CandidateTrials], kinds: Sequence[str]) -> None:
    """Write the figures of the candidates that have begun, if any."""
    done = [outcome for outcome in outcomes if outcome.trials or outcome.problem]
    if not done:
        return
    summary = summarize_trials(done, kinds)
    if screen.is_json:
        trials = [
            {"model": outcome.candidate.model, "way": outcome.candidate.way, **asdict(trial)}
            for outcome in done
            for trial in outcome.trials.values()
        ]
        screen.document({**asdict(summary), "trials": trials})
        return
    _write_scores(screen, summary)
    _write_costs(screen, summary)


def _write_scores(screen: Screen, summary: EvaluationSummary) -> None:
    rows = [["solved, in % (interval)", *(each.label for each in summary.candidates)]]
    for kind in (*summary.kinds, ALL_KINDS):
        scores = [each.scores[kind] for each in summary.candidates]
        cells = [f"{100 * s.solved / s.tasks:.0f} ({s.interval})" if s.tasks else "-" for s in scores]
        rows.append([f"{kind} ({max(score.tasks for score in scores)})", *cells])
    _write_rows(screen, rows)


def _write_costs(screen: Screen, summary: EvaluationSummary) -> None:
    screen.say()
    for each in summary.candidates:
        reasons = ", ".join(f"{reason} {count}" for reason, count in each.reasons.items()) or "nothing failed"
        screen.say(f"{each.label}: {each.tokens:.0f} tokens and {each.seconds:.2f} s for a task; {reasons}")
        if each.error:
            screen.note(f"{each.label}, a request that failed: {each.error}", "bad")
        if each.problem:
            screen.note(f"{each.label} was given up: {each.problem}", "bad")


def _write_rows(screen: Screen, rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        screen.say("  ".join([row[0].ljust(widths[0]), *cells]))
