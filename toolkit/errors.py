"""All exceptions of the library.

::

    ToolkitError
      ConfigurationError            your code is wrong: at decoration, registration or construction
        SchemaError                 a function or a schema that can't be a tool
        DuplicateToolError          a name that is taken
        UnknownToolNameError        a name that is not in the registry
        MissingEnvError             an environment variable that a tool needs
      ToolError                     raised inside a tool's run: becomes an error result for the model
        ToolFailedError
        ToolNotFoundError
        InvalidArgumentsError
        ToolDeniedError
        ToolTimeoutError
        ToolCancelledError
        ToolUsageLimitExceededError
        ToolUsageError
      LoopError                     the run can't continue; carries the transcript
        MaxDepthExceededError
        TooManyRunsError
        RunStoppedError             raised by a middleware: the run ends, and nothing is raised
        BudgetStoreError            the store of a budget can't be used
        LoopUsageError
          JournalError              the log of a durable run can't be continued
            LaterReleaseError       a later release of this library wrote the snapshot or log
        ToolCrashedError
      TranscriptError               a transcript whose calls and results don't match
      ProviderError                 the model could not be reached or understood; carries the transcript
        ProviderAuthError
        RateLimitedError
        ProviderTimeoutError
        ContextTooLongError
        ContentFilteredError
        BadResponseError
      SourceError                   tools from elsewhere
        McpError
        OpenApiError
        PluginError
      ConversationError             a conversation can't be continued
        ConversationBusyError       another turn is running
        ConversationChangedError    it has changed since it was read, or was taken over
        ConversationStoreError      the store is unavailable, or can't be read
      DurableError                  a durable run can't be started, found or changed
        DurableRunNotFoundError
        DecisionRefusedError        the call is decided, or has changed
        DatabaseUnavailableError    the database is unavailable: try again
        UnstorableValueError        the database can't store a value
        WorkersLostError            the workers of a run ended one after the other, perhaps because of it
      RecordedError                 an error of another run, read back from JSON

Constructors take facts and store them as attributes; the class writes the message.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolkit.redaction import clean_text
from toolkit.suggestions import ask_whether_meant, find_similar

if TYPE_CHECKING:
    from toolkit.chat import Message, Usage
    from toolkit.loop.outcome import Aborted, UsageLimit

__all__ = [
    "BadResponseError", "BudgetStoreError", "ConfigurationError", "ContentFilteredError", "ContextTooLongError",
    "ConversationBusyError", "ConversationChangedError", "ConversationError", "ConversationStoreError",
    "DatabaseUnavailableError", "DecisionRefusedError", "DuplicateToolError", "DurableError",
    "DurableRunNotFoundError", "InvalidArgumentsError", "JournalError", "LaterReleaseError", "LoopError",
    "LoopUsageError",
    "MaxDepthExceededError", "McpError", "MissingEnvError", "OpenApiError", "PluginError", "ProviderAuthError",
    "ProviderError", "ProviderTimeoutError", "RateLimitedError", "RecordedError", "RunStoppedError", "SchemaError",
    "SourceError", "TooManyRunsError", "ToolCancelledError", "ToolCrashedError", "ToolDeniedError", "ToolError",
    "ToolFailedError", "ToolNotFoundError", "ToolTimeoutError", "ToolUsageError", "ToolUsageLimitExceededError",
    "ToolkitError", "TranscriptError", "UnknownToolNameError", "UnstorableValueError", "WorkersLostError",
]  # fmt: skip


_LONGEST_SOURCE_MESSAGE = 4_000


class ToolkitError(Exception):
    """The root of all exceptions that this library raises on purpose.

    Attributes:
        struck_secrets: The secret arguments of calls that its message would repeat; logs of its causes have none, too.
    """

    struck_secrets: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return clean_text(super().__repr__())

    @property
    def model_text(self) -> str:
        """The text for a model, if a tool raises this, without advice to a developer."""
        return str(self)


class ConfigurationError(ToolkitError):
    """Wrong use in code; raised at decoration, registration or construction."""

    @property
    def model_text(self) -> str:
        """A general text for a model; the log has the remedy for the author."""
        return "the tool is not set up rightly and can't be used now"


class SchemaError(ConfigurationError):
    """A function that can't be a tool, or a schema that can't be used.

    Args:
        subject: The function or tool, as its author would name it.
        reason: The problem and its solution.
        parameter: The parameter concerned, if any.
    """

    def __init__(self, subject: str, reason: str, *, parameter: str | None = None) -> None:
        self.subject = subject
        self.reason = reason
        self.parameter = parameter
        where = f"parameter '{parameter}' of {subject}" if parameter is not None else subject
        super().__init__(f"{where}: {reason}")


class DuplicateToolError(ConfigurationError):
    """A second tool under a name that is taken."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"a tool named '{name}' is registered already: use register_or_replace() to replace it, "
            "or renamed()/prefixed() to keep both"
        )


class UnknownToolNameError(ConfigurationError):
    """A name that is not in the registry; the message suggests similar ones."""

    def __init__(self, name: str, available: Iterable[str]) -> None:
        self.name = name
        self.available: tuple[str, ...] = tuple(available)
        self.near: tuple[str, ...] = find_similar(name, self.available)
        there = f"there are: {', '.join(self.available)}" if self.available else "the registry is empty"
        hint = ask_whether_meant(self.near) or there
        super().__init__(f"no tool named '{name}' in this registry; {hint}")


class MissingEnvError(ConfigurationError):
    """A tool needs an environment variable that is not set."""

    def __init__(self, tool: str, variable: str, description: str = "") -> None:
        self.tool = tool
        self.variable = variable
        what = f" ({description})" if description else ""
        who = f"tool '{tool}' needs the" if tool else "needed is the"
        super().__init__(f"{who} environment variable {variable}{what}, which is not set")


class ToolError(ToolkitError):
    """Raise this, or a subclass, in a tool: the model reads the message as an error result and can react.

    Any other exception becomes an error result, too, as ``Type: message``; this one becomes its message alone.
    """

    def __init__(self, message: str = "") -> None:
        self.message: str = str(message) or type(self).__name__
        super().__init__(self.message)


class ToolFailedError(ToolError):
    """The tool tried and failed."""


class ToolNotFoundError(ToolError):
    """A tool, or something that a tool looked for, does not exist.

    Args:
        name: The requested name.
        available: The available tools, the first 20 of which are listed; None if something other than a tool is
            missing.
        near: The names that the model may have meant.
    """

    def __init__(self, name: str, available: Sequence[str] | None = None, near: Sequence[str] = ()) -> None:
        self.name = name
        self.available: tuple[str, ...] = tuple(available or ())
        self.near: tuple[str, ...] = tuple(near)
        question = f" {ask_whether_meant(self.near, quote='', is_sentence=True)}" if self.near else ""
        shown = name if len(name) <= 100 else f"{name[:100]}..."  # a model's text is unbounded
        if available is None:
            super().__init__(f"Not found: {shown}{'.' if question else ''}{question}")
            return
        more = f" and {len(self.available) - 20} more" if len(self.available) > 20 else ""
        offer = f"Available tools: {', '.join(self.available[:20])}{more}." if available else "No tools are available."
        super().__init__(f"Unknown tool: {shown}.{question} {offer}")


class InvalidArgumentsError(ToolError):
    """The arguments of a call do not match the tool's parameters; the message lists all problems for the model.

    Attributes:
        crash: An unexpected exception of the tool's own validation, which the message repeats.
        paths: The places of the problems in the arguments, each as the names and indexes that lead there.
        lines: The part of the message that describes the problems, without the example for a model.
    """

    crash: BaseException | None = None
    paths: Sequence[tuple[str | int, ...]] = ()
    lines: Sequence[str] = ()


class ToolDeniedError(ToolError):
    """The call was denied by a rule, a hook or a person."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "Tool call denied.")


class ToolTimeoutError(ToolError):
    """The tool exceeded its time limit, or waited too long before it could start.

    Args:
        tool: The name of the tool.
        seconds: The duration of its run or wait.
        still_running: True if parts of it may still be running.
        waited_for: The resource that it waited for if it never started, such as ``a worker thread``; else None.
        is_harmless: True if it only reads, so that it can't have had an effect.
    """

    def __init__(
        self,
        tool: str,
        seconds: float,
        *,
        still_running: bool = False,
        waited_for: str | None = None,
        is_harmless: bool = False,
    ) -> None:
        self.tool = tool
        self.seconds = seconds
        self.still_running = still_running
        self.waited_for = waited_for
        self.is_harmless = is_harmless
        if waited_for is not None:
            message = f"Not started: tool '{tool}' waited {seconds:g} s for {waited_for} in vain. Try again later."
        else:
            effects = [] if is_harmless else ["may have taken effect"]
            effects += ["may still be running"] if still_running else []
            after = f" It {' and '.join(effects)}." if effects else ""
            message = f"Tool '{tool}' timed out after {seconds:g} s.{after}"
        super().__init__(message)


class ToolCancelledError(ToolError):
    """The tool was stopped before it finished."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "Cancelled")


class ToolUsageLimitExceededError(ToolError):
    """The tool has reached its usage limit."""

    def __init__(self, tool: str, limit: int) -> None:
        self.tool = tool
        self.limit = limit
        super().__init__(f"Tool '{tool}' has reached its usage limit of {limit} and cannot be used anymore.")


class ToolUsageError(ToolError):
    """A call could not be read, matched to a tool, or carried out."""


class LoopError(ToolkitError):
    """The run can't continue.

    Attributes:
        messages: The transcript so far; valid, each call with its result.
        usage: The usage of all requests so far; None if no run had started.
    """

    def __init__(self, message: str) -> None:
        self.messages: tuple[Message, ...] = ()
        self.usage: Usage | None = None
        super().__init__(message)


class MaxDepthExceededError(LoopError):
    """A loop has too many enclosing loops: `depth` of them; `limit` is the smallest ``max_depth`` of all."""

    def __init__(self, depth: int, limit: int) -> None:
        self.depth = depth
        self.limit = limit
        super().__init__(f"loop depth {depth} is not below the limit of {limit}: raise max_depth, or nest less")

    @property
    def model_text(self) -> str:
        """The depth and its limit, without the setting."""
        return f"loop depth {self.depth} is not below the limit of {self.limit}, so this can't be handed on any further"


class TooManyRunsError(LoopError):
    """The queue of a `RunLimit` is full; the run has not started, and may be retried later."""

    def __init__(self, runs: int, waiting: int) -> None:
        self.runs = runs
        self.waiting = waiting
        super().__init__(f"{runs} runs are under way and {waiting} wait, which is the limit: try again later")


class RunStoppedError(LoopError):
    """Raised by ``around_request`` of a middleware to end the run with a reason; the caller gets a result.

    Args:
        reason: The reason of the result: `UsageLimit` or `Aborted`.
        usage: The usage of the request if it was made and its reply is discarded; None if it was not made.
    """

    def __init__(self, reason: UsageLimit | Aborted, usage: Usage | None = None) -> None:
        super().__init__(f"the run is to end with {reason!r}, which only around_request can ask for")
        self.reason = reason
        self.usage = usage


class BudgetStoreError(LoopError):
    """The store of a budget is down, slow, full or of another version; no request was made.

    Args:
        store: The store, without a password.
        reason: The problem.
    """

    def __init__(self, store: str, reason: str) -> None:
        self.store = store
        self.reason = reason
        super().__init__(f"the budgets in {store} can't be used: {reason}")


class LoopUsageError(LoopError):
    """Wrong use of a loop: a feed out of order, a foreign snapshot, a finished handle."""

    @property
    def model_text(self) -> str:
        """A general text for a model; the log has the remedy for the author."""
        return "the tool is not set up rightly and can't be used now"


class JournalError(LoopUsageError):
    """The log of a durable run can't be continued: it belongs to another run, was changed, or can't store a value."""


class LaterReleaseError(JournalError):
    """A snapshot or a log was written by a later release of this library, which can continue it."""


class ToolCrashedError(LoopError):
    """A tool raised an exception other than a `ToolError`, and ``on_tool_exception="raise"`` ends the run with it.

    The exception is the ``__cause__``; the transcript in `messages` contains the call with its error result.
    """

    def __init__(self, tool: str, call_id: str, reason: str) -> None:
        self.tool = tool
        self.call_id = call_id
        super().__init__(f"tool '{tool}' raised in call '{call_id}': {reason}")

    @property
    def model_text(self) -> str:
        """The tool that failed; the exception is in the log."""
        return f"its tool '{self.tool}' failed"


class TranscriptError(ToolkitError, ValueError):
    """A list of messages is not a valid transcript; `index` is the position of the problem."""

    def __init__(self, index: int, reason: str) -> None:
        self.index = index
        self.reason = reason
        super().__init__(f"message {index}: {reason}")


class ProviderError(ToolkitError):
    """The model could not be reached, or its answer can't be used.

    Args:
        provider: The display name of the provider.
        message: The problem and its solution; never contains a key.
        status: The HTTP status, if there was one.
        retry_after: The seconds that the server asked to wait.
        is_retryable: True if the same request may succeed later; None takes the default of the class: True for rate
            limits and timeouts, False for others.
        request_id: The server's id of the request.

    Attributes:
        messages: The transcript so far, if a loop was running; valid, each call with its result.
        usage: The reported usage so far: of the failed request, and in a loop of all requests.
    """

    _usually_retryable = False

    def __init__(
        self,
        provider: str,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        is_retryable: bool | None = None,
        request_id: str | None = None,
    ) -> None:
        self.provider = provider
        self.message = message
        self.status = status
        self.retry_after = retry_after
        self.is_retryable: bool = self._usually_retryable if is_retryable is None else is_retryable
        self.request_id = request_id
        self.messages: tuple[Message, ...] = ()
        self.usage: Usage | None = None
        facts = ([f"HTTP {status}"] if status is not None else []) + ([f"request {request_id}"] if request_id else [])
        where = f" ({', '.join(facts)})" if facts else ""
        super().__init__(f"{provider}{where}: {message}")


class ProviderAuthError(ProviderError):
    """The key is missing or wrong, or lacks a permission."""


class RateLimitedError(ProviderError):
    """Too many requests; `retry_after` is the delay if the server gave one."""

    _usually_retryable = True


class ProviderTimeoutError(ProviderError):
    """The connection failed, or no response arrived in time."""

    _usually_retryable = True


class ContextTooLongError(ProviderError):
    """The conversation is longer than the model can read: shorten it, or set a compaction."""


class ContentFilteredError(ProviderError):
    """The provider's content filter refused the request before a model read it; a retry is refused as well."""


class BadResponseError(ProviderError):
    """A response that violates the protocol."""


class SourceError(ToolkitError):
    """Tools of a source could not be loaded or called.

    Args:
        message: It may quote the source: the middle of a long one is left out, and lone surrogates are replaced.
    """

    def __init__(self, message: str) -> None:
        half = _LONGEST_SOURCE_MESSAGE // 2
        whole = len(message) <= _LONGEST_SOURCE_MESSAGE
        shown = message if whole else f"{message[:half]} [...] {message[-half:]}"
        super().__init__(shown.encode("utf-8", "replace").decode())


class McpError(SourceError):
    """An MCP server could not be reached, or broke the protocol."""


class OpenApiError(SourceError):
    """An OpenAPI document that can't be used."""


class PluginError(SourceError):
    """A plugin that could not be started, or broke the protocol."""


class ConversationError(ToolkitError):
    """A conversation can't be continued.

    Attributes:
        messages: The transcript that could not be stored, if a run was in progress; else empty.
    """

    def __init__(self, message: str) -> None:
        self.messages: tuple[Message, ...] = ()
        super().__init__(message)


class ConversationBusyError(ConversationError):
    """Another turn of a conversation is running: try again later, wait, or queue the question.

    Args:
        conversation_id: The conversation.
    """

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        super().__init__(f"another turn is under way in conversation {conversation_id!r}: ask again when it has ended")


class ConversationChangedError(ConversationError):
    """A conversation has changed since it was read, or was taken over.

    Args:
        conversation_id: The conversation.
        reason: The problem.
    """

    def __init__(self, conversation_id: str, reason: str) -> None:
        self.conversation_id = conversation_id
        self.reason = reason
        super().__init__(f"conversation {conversation_id!r} is not what it was: {reason}")


class ConversationStoreError(ConversationError):
    """The store of conversations is unavailable, full, of another version, or can't be read."""


class RecordedError(ToolkitError):
    """An error that was read back from JSON: the name of its class, such as ``ValueError``, and its message."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        super().__init__(f"{kind}: {message}" if message else kind)


@contextmanager
def naming_extra(extra: str) -> Generator[None]:
    """Import packages of an extra in the block; the error for a missing one names the extra.

    Raises:
        ModuleNotFoundError: A package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("toolkit"):
            raise
        raise ModuleNotFoundError(
            f"{error.name} is not installed: `pip install 'toolkit-sdk[{extra}]'`", name=error.name
        ) from error


class DurableError(ToolkitError):
    """A durable run can't be started, found or changed."""


class DurableRunNotFoundError(DurableError):
    """There is no durable run with this id.

    Args:
        run_id: The requested id.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"there is no durable run {run_id!r} in this database")


class DecisionRefusedError(DurableError):
    """A decision on a call of a durable run was refused: the call is decided already, or has changed.

    Args:
        run_id: The run.
        call_id: The call.
        reason: The reason and the remedy.
    """

    def __init__(self, run_id: str, call_id: str, reason: str) -> None:
        self.run_id = run_id
        self.call_id = call_id
        self.reason = reason
        super().__init__(f"the decision on call {call_id!r} of run {run_id!r} was not taken: {reason}")


class DatabaseUnavailableError(DurableError):
    """The database of durable runs can't be reached, or is not such a database.

    Args:
        url: Its URL without a password.
        reason: The problem.
    """

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"the database of durable runs at {url} can't be used: {reason}")


class UnstorableValueError(DurableError):
    """An available database can't store a value: it is too large, not JSON, or not Unicode.

    Args:
        place: The place of the value, such as ``metadata['since']``.
        reason: The problem and the remedy.
    """

    def __init__(self, place: str, reason: str) -> None:
        self.place = place
        self.reason = reason
        super().__init__(f"{place} can't be stored: {reason}")


class WorkersLostError(DurableError):
    """The workers of a durable run died one after the other without an error; see ``durable_loop(max_lost=)``.

    Args:
        run_id: The run.
        count: The number of lost workers.
        under_way: A description of the turn and calls in progress.
    """

    def __init__(self, run_id: str, count: int, under_way: str) -> None:
        self.run_id = run_id
        self.count = count
        self.under_way = under_way
        workers = "the worker" if count == 1 else f"each of the {count} workers"
        super().__init__(
            f"{workers} that moved run {run_id!r} ended without a word before a call of it came to its end; when the "
            f"last one did, {under_way}. Does it crash the process, or use up its memory? `retry()` begins again"
        )
