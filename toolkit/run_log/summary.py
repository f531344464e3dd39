"""The summary of a run in a list: counted as the entries come, and written once more at a run's end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Literal, TypeAlias

from toolkit.dataclass import dataclass
from toolkit.run_log.entries import read_object

__all__ = ["RunState", "RunSummary", "RunTally", "join_texts"]

RunState: TypeAlias = Literal["running", "ended", "failed", "cut off", "unreadable"]
"""``cut off`` is a run whose process was killed: no end was written, and nobody writes anymore."""

_LONGEST_PROMPT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run in a few facts.

    Args:
        id: The run.
        state: How it stands.
        started: Seconds since 1970.
        ended: The same for its end, or for the last that was written; None where nothing was.
        agent: The name of the agent that ran, if it has one.
        model: The model that answered first.
        prompt: The start of what the user said; empty where contents are not kept.
        ending: The `kind` of the reason for its end, or the class of the error that it failed with.
        error: The message of that error.
        requests: How many requests were answered, sub-agents' among them; so are the others.
        tool_calls: How many calls ran or were refused.
        tool_errors: How many of them failed or were refused.
        sub_agents: How many loops ran inside tools.
        input_tokens: Sum over all requests.
        output_tokens: The same.
        cost: The same, where a provider told it or prices are known; None where no request did.
        problem: The problem of the log itself, in words; empty where nothing is.
        where: The file, or the place in the database.
    """

    id: str
    state: RunState = "running"
    started: float = 0.0
    ended: float | None = None
    agent: str = ""
    model: str = ""
    prompt: str = ""
    ending: str = ""
    error: str = ""
    requests: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    sub_agents: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    problem: str = ""
    where: str = ""

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return 0.0 if self.ended is None else max(0.0, self.ended - self.started)


class RunTally:
    """Counts the entries of one run.

    Args:
        run_id: The run.
    """

    def __init__(self, run_id: str) -> None:
        self._facts = RunSummary(id=run_id)
        self._counts: dict[str, Any] = {field.name: getattr(self._facts, field.name) for field in fields(self._facts)}
        self.position = 0
        """Where the next entry to count stands; kept by who reads them."""

    def add(self, plain: Mapping[str, Any]) -> None:
        """Count an entry."""
        counts, kind = self._counts, plain["event"]
        counts["ended"] = max(plain.get("time") or 0.0, counts["ended"] or 0.0)
        counter = _COUNTERS.get(kind)
        if counter is not None:
            counter(counts, plain)

    def summarize(self) -> RunSummary:
        """Return what has been counted so far."""
        return RunSummary(**self._counts)

    def dump_summary(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        return asdict(self.summarize())


def _count_opening(counts: dict[str, Any], plain: Mapping[str, Any]) -> None:
    counts["started"] = counts["started"] or plain.get("time") or 0.0
    counts["state"] = "running"


def _count_loop(counts: dict[str, Any], plain: Mapping[str, Any]) -> None:
    if plain.get("loop_id") == counts["id"]:
        counts["agent"] = counts["agent"] or plain.get("agent") or ""


def _count_start(counts: dict[str, Any], plain: Mapping[str, Any]) -> None:
    if plain.get("loop_id") == counts["id"]:
        counts.update(state="running", ending="", error="")  # a run that awaited a decision goes on
    else:
        counts["sub_agents"] += 1


def _count_request(counts: dict[str, Any], plain: Mapping[str, Any]) -> None:
    if counts["prompt"]:
        return
    for message in plain.get("messages") or ():
        if message.get("role") == "user":
            counts["prompt"] = join_texts(message.get("content"))[:_LONGEST_PROMPT]
            return


def _count_response(counts: dict[str, Any], plain: Mapping[str, Any]) -> None:
    response = read_object(plain, "response")
    usage = read_object(response, "usage")
    counts["requests"] += 1
    counts["model"] = counts["model"] or response.get("model") or ""
    counts["input_tokens"] += usage.get("input_tokens") or 0
    counts["output_tokens"] += usage.get("output_tokens") or 0
    if usage.get("cost") is not None:
        counts["cost"] = (counts["cost"] or 0.0) + usage["cost"]


def _count_result(counts: dict[str, Any], plain: Mapping[str, Any]) -> None:
    counts["tool_calls"] += 1
    counts["tool_errors"] += bool(read_object(plain, "result").get("is_error"))


def _count_end(counts: dict[str, Any], plain: Mapping[str, Any]) -> None:
    if plain.get("loop_id") == counts["id"]:
        reason = read_object(read_object(plain, "result"), "reason")
        counts.update(state="ended", ending=reason.get("kind") or "")


def _count_failure(counts: dict[str, Any], plain: Mapping[str, Any]) -> None:
    if plain.get("loop_id") == counts["id"]:
        error = read_object(plain, "error")
        counts.update(state="failed", ending=error.get("type") or "", error=error.get("message") or "")


def join_texts(content: object) -> str:
    """Return the text of a message's content, as JSON has it."""
    if isinstance(content, str):
        return content
    blocks: Any = content or ()
    return "\n".join([block["text"] for block in blocks if block.get("type") == "text"])


_COUNTERS = {
    "run_opened": _count_opening,
    "loop_opened": _count_loop,
    "run_start": _count_start,
    "request_made": _count_request,
    "response_received": _count_response,
    "tool_execution_end": _count_result,
    "tool_call_refused": _count_result,
    "done": _count_end,
    "failed": _count_failure,
}
