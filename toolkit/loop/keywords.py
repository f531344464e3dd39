"""The place of what is often given to a loop or its settings by another name, or one level too high or too low."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from toolkit.chat import ChatRequest
from toolkit.chat.request import SAMPLING_OPTIONS

__all__ = ["explain_loop_keyword", "explain_setting"]

_OF_THE_LOOP: Mapping[str, str] = {
    "system": "system_prompt=...",
    "system_message": "system_prompt=...",
    "instructions": "system_prompt=...",
    "context": "ctx=...",
    "deps": "ctx=...",
    "messages": "them in the place of the prompt",
    "snapshot": "it in the place of the prompt",
    "tools": "ChatRequest(messages=..., tools=...) in the place of the prompt, or a scope of the registry",
    "model": "it into the provider, such as OpenAIProvider('gpt-5')",
}
_OF_THE_CONFIG: Mapping[str, str] = {
    "approve": "on_tool_call=...",
    "approver": "on_tool_call=...",
    "approval_timeout": "timeouts=Timeouts(approval=...)",
    "event_handler": "on_event=...",
    "max_steps": "max_iterations=...",
    "max_turns": "max_iterations=...",
    "max_output_chars": "output=OutputLimits(max_chars=...)",
    "output_type": "answer=AnswerFormat(...)",
    "retry": "provider_retry=ProviderRetryConfig(...), or retry=ToolRetryConfig(...) of a tool",
    "tool_timeout": "timeouts=Timeouts(tool=...)",
    "usage_limits": "limits=LoopLimits(usage=UsageLimits(...))",
}


def explain_loop_keyword(name: str) -> str:
    """Return what to write in place of a keyword that a loop does not take; empty where that is not known."""
    if name in _OF_THE_LOOP:
        return _OF_THE_LOOP[name]
    if name in {field.name for field in fields(ChatRequest)}:
        return f"ChatRequest(messages=..., {name}=...) in the place of the prompt"
    if name in SAMPLING_OPTIONS:
        return f"config=ToolLoopConfig(request_options={{'{name}': ...}})"
    return f"config=ToolLoopConfig({_OF_THE_CONFIG[name]})" if name in _OF_THE_CONFIG else ""


def explain_setting(name: str) -> str:
    """Return what to write in place of a keyword that `ToolLoopConfig` does not take; empty where that is not known."""
    if name in _OF_THE_CONFIG:
        return _OF_THE_CONFIG[name]
    if name in SAMPLING_OPTIONS:
        return f"request_options={{'{name}': ...}}"
    advice = f"{name}=..." if name in ("ctx", "system_prompt", "decisions") else explain_loop_keyword(name)
    return f"{advice} beside config=..." if advice.endswith("=...") else advice
