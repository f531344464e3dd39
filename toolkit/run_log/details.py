"""The details of a step, in sections: messages, arguments, results and facts, as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal, TypeAlias

from toolkit.dataclass import dataclass
from toolkit.run_log.entries import LogEntry, read_object

__all__ = ["Section", "SectionKind", "describe_message", "describe_step", "lay_out_json"]

SectionKind: TypeAlias = Literal["facts", "text", "json", "message", "error", "question"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of what is said of a step.

    Args:
        title: Such as ``Arguments``, or the role of a message.
        kind: How it is shown.
        text: Its text; empty for ``facts``.
        facts: Names and values, for ``facts``.
    """

    title: str
    kind: SectionKind
    text: str = ""
    facts: Mapping[str, str] = field(default_factory=dict[str, str])


def describe_step(entries: Iterable[LogEntry]) -> list[Section]:
    """Return the sections of a step, given the entries that belong to it, in order; see `RunStep.positions`."""
    sections: list[Section] = []
    reply: dict[str, list[str]] = {"text_delta": [], "reasoning_delta": []}
    for entry in entries:
        if entry.kind in reply:
            reply[entry.kind].append(str(entry.plain.get("text", "")))
            continue
        if entry.kind in ("response_received", "provider_retried"):
            reply = {kind: [] for kind in reply}
        describe = _DESCRIBERS.get(entry.kind)
        for section in () if describe is None else describe(entry.plain):
            _add_section(sections, section)
    sections += [
        Section(title=title, kind="message", text="".join(reply[kind]))
        for kind, title in (("reasoning_delta", "Reasoning so far"), ("text_delta", "Reply so far"))
        if reply[kind]
    ]
    return sections


def _add_section(sections: list[Section], section: Section) -> None:
    """Append a section; what a call reports one after the other stands in one."""
    last = sections[-1] if sections else None
    if last is not None and last.title == section.title and section.title in _REPORTS:
        sections[-1] = replace(last, text=f"{last.text}\n{section.text}")
    else:
        sections.append(section)


_REPORTS = ("Progress", "Update")


def _describe_opening(plain: Mapping[str, Any]) -> list[Section]:
    return [_list_facts("Loop", plain, ("agent", "provider", "model", "loop_id", "parent_loop_id", "parent_call_id"))]


def _describe_asked(plain: Mapping[str, Any]) -> list[Section]:
    known = int(plain.get("known_messages") or 0)
    sections: list[Section] = []
    if known:
        sections.append(Section(title="Before that", kind="text", text=f"{known} messages, as they were asked before."))
    for message in plain.get("messages") or ():
        sections += describe_message(message)
    tools = [str(each.get("name")) for each in plain.get("definitions") or ()]
    if tools:
        sections.append(Section(title=f"Tools offered ({len(tools)})", kind="text", text=", ".join(tools)))
    return sections


def describe_message(message: Mapping[str, Any]) -> list[Section]:
    """Return the sections of one message of a transcript."""
    role, content = str(message.get("role", "")), message.get("content")
    title = f"{role}: {message['tool_name']}" if message.get("tool_name") else role
    if isinstance(content, str):
        kind: SectionKind = "error" if message.get("is_error") else "message"
        return [Section(title=title, kind=kind, text=content)] if content else []
    return [_describe_content(title, block) for block in content or ()]


def _describe_content(title: str, block: Mapping[str, Any]) -> Section:
    match block.get("type"):
        case "call":
            return Section(
                title=f"{title} calls {block.get('name')}", kind="json", text=lay_out_json(block.get("arguments"))
            )
        case "reasoning":
            return Section(title=f"{title}, reasoning", kind="message", text=str(block.get("text", "")))
        case _:
            return Section(title=title, kind="message", text=str(block.get("text", "")))


def _describe_reply(plain: Mapping[str, Any]) -> list[Section]:
    response = read_object(plain, "response")
    usage = read_object(response, "usage")
    sections = [
        Section(title=section.title.replace("assistant", "Reply", 1), kind=section.kind, text=section.text)
        for section in describe_message(read_object(response, "message"))
    ]
    facts = {name: response.get(name) for name in ("model", "stop_reason", "request_id")}
    return [*sections, _list_facts("Answer", {**facts, **usage}, (*facts, *usage))]


def _describe_retry(plain: Mapping[str, Any]) -> list[Section]:
    error = read_object(plain, "error")
    facts = {"attempt": plain.get("attempt"), "seconds until the next": plain.get("delay"), **error}
    text = str(facts.pop("message", ""))
    return [Section(title="Error", kind="error", text=text), _list_facts("Retry", facts, tuple(facts))]


def _describe_repair(plain: Mapping[str, Any]) -> list[Section]:
    before, after = plain.get("before"), plain.get("after")
    assumed = "\n".join([f"({each})" for each in plain.get("assumed") or ()])
    return [
        Section(title=f"Repaired {plain.get('kind')}", kind="text", text=f"{before}\nas\n{after}\n{assumed}".strip())
    ]


def _describe_asking(plain: Mapping[str, Any]) -> list[Section]:
    reason = plain.get("reason") or "Somebody is asked whether it may run."
    who = f"For sub-agent {plain['agent']}. " if plain.get("agent") else ""
    return [Section(title="Approval", kind="text", text=f"{who}{reason}")]


def _describe_question(plain: Mapping[str, Any]) -> list[Section]:
    return [Section(title="Arguments to approve", kind="question", text=lay_out_json(plain.get("preview")))]


def _describe_answer(plain: Mapping[str, Any]) -> list[Section]:
    said = f"{plain.get('answer')}. {plain.get('reason') or ''}".strip()
    return [Section(title="Decision", kind="text", text=said)]


def _describe_start(plain: Mapping[str, Any]) -> list[Section]:
    return [Section(title="Arguments", kind="json", text=lay_out_json(plain.get("arguments")))]


def _describe_update(plain: Mapping[str, Any]) -> list[Section]:
    return describe_message({"role": "Update", "content": read_object(plain, "output").get("content")})


def _describe_progress(plain: Mapping[str, Any]) -> list[Section]:
    return [Section(title="Progress", kind="text", text=str(plain.get("text", "")))]


def _describe_result(plain: Mapping[str, Any]) -> list[Section]:
    result = read_object(plain, "result")
    is_error = bool(result.get("is_error"))
    sections = [
        Section(title="Error" if is_error else "Result", kind="error" if is_error else section.kind, text=section.text)
        for section in describe_message({**result, "role": "", "tool_name": ""})
    ]
    facts: dict[str, Any] = {"cached": "yes"} if plain.get("is_cached") else {}
    if plain.get("duration"):
        facts["ran for"] = f"{plain['duration']:.3f} s"
    if plain.get("error"):
        facts["raised"] = f"{plain['error'].get('type')}: {plain['error'].get('message')}"
    tags = plain.get("tags") or ()
    if tags:
        facts["tags"] = ", ".join(tags)
    return [*sections, *([_list_facts("Call", facts, tuple(facts))] if facts else [])]


def _describe_end(plain: Mapping[str, Any]) -> list[Section]:
    failure: Mapping[str, Any] | None = plain.get("error")
    if failure is not None:
        text = f"{failure.get('type')}: {failure.get('message')}"
        return [Section(title="Failed", kind="error", text=text)]
    result = read_object(plain, "result")
    reason = read_object(result, "reason")
    facts = {**reason, "requests": result.get("iterations"), "turns with tools": result.get("tool_rounds")}
    sections = [Section(title="Answer", kind="message", text=str(result.get("text")))] if result.get("text") else []
    if result.get("output") is not None:
        sections.append(Section(title="Output", kind="json", text=lay_out_json(result["output"])))
    usage = read_object(result, "usage")
    return [*sections, _list_facts("End", {**facts, **usage}, (*facts, *usage))]


def _list_facts(title: str, plain: Mapping[str, Any], names: Sequence[str]) -> Section:
    known = {name.replace("_", " "): plain.get(name) for name in names}
    facts = {name: _say_value(value) for name, value in known.items() if value not in (None, "", [], {})}
    return Section(title=title, kind="facts", facts=facts)


def _say_value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def lay_out_json(value: object) -> str:
    """Return JSON, or a text that may be JSON, in lines."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return json.dumps(value, ensure_ascii=False, indent=2)


_DESCRIBERS = {
    "loop_opened": _describe_opening,
    "request_made": _describe_asked,
    "response_received": _describe_reply,
    "provider_retried": _describe_retry,
    "tool_call_repaired": _describe_repair,
    "approval_requested": _describe_asking,
    "question_asked": _describe_question,
    "question_answered": _describe_answer,
    "tool_execution_start": _describe_start,
    "tool_execution_update": _describe_update,
    "tool_progress": _describe_progress,
    "tool_execution_end": _describe_result,
    "tool_call_refused": _describe_result,
    "done": _describe_end,
    "failed": _describe_end,
}
