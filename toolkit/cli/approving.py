"""Approval on the terminal: the person there is asked about the calls of a model, with the exact arguments."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias

import anyio

from toolkit.calls.approval import Abort, Approval, ApprovalRequest, Approve, Deny
from toolkit.cli.questions import read_answer
from toolkit.cli.screen import Screen
from toolkit.cli.terminal import Terminal, WasInterruptedError
from toolkit.visible_text import escape_in_name

__all__ = ["Asking", "Approver"]

Asking: TypeAlias = Literal["needed", "writes", "all", "auto"]
"""The calls that are asked about: those whose tools want it; also those of tools that do not only read; or all.
``auto`` is ``needed`` for tools of the user's own Python, and ``writes`` for those from elsewhere."""

_CHOICES = "Run it? [y]es, [n]o, [a]lways, [s]top, or say why not: "


class Approver:
    """Decides on the calls of a conversation; what it was told to allow always is allowed to its end.

    Args:
        screen: Shows the calls.
        terminal: Asks.
        asking: The calls that are asked about.
        own: The names of the tools that are the user's own.
        approves_all: True where nobody is to be asked.
    """

    def __init__(
        self, screen: Screen, terminal: Terminal, asking: Asking, own: Collection[str], *, approves_all: bool
    ) -> None:
        self._screen, self._terminal = screen, terminal
        self._asking, self._own, self._approves_all = asking, own, approves_all
        self._allowed: set[str] = set()
        self._one_at_a_time = anyio.Lock()

    async def decide(self, request: ApprovalRequest) -> Approval:
        """Answer for the person, or ask."""
        why = self._find_reason(request)
        if self._approves_all or not why or request.tool_name in self._allowed:
            return Approve()
        if not self._terminal.is_interactive:
            return Deny(f"{why} Nobody is there to approve it, so it was not run.")
        async with self._one_at_a_time:
            if request.tool_name in self._allowed:  # since the question before
                return Approve()
            return await self._ask_person(request, why)

    async def _ask_person(self, request: ApprovalRequest, why: str) -> Approval:
        self._screen.note(why, "strong")
        if request.agent:
            self._screen.note(f"  asked for by the agent {escape_in_name(request.agent)}")
        self._screen.note(f"  {request.tool_name} {request.preview}", "call")
        try:
            answer = await self._terminal.ask(lambda: read_answer(_CHOICES))
        except (WasInterruptedError, EOFError):
            return Abort("The user ended the turn.")
        match answer.lower():
            case "y" | "yes":
                return Approve()
            case "a" | "always":
                self._allowed.add(request.tool_name)
                return Approve()
            case "s" | "stop":
                return Abort("The user ended the turn.")
            case "" | "n" | "no":
                return Deny("The user did not approve this call.")
            case _:
                return Deny(f"The user did not approve this call: {answer}")

    def _find_reason(self, request: ApprovalRequest) -> str:
        """Return why a call is asked about, or ""."""
        if request.reason or self._asking == "needed":
            return request.reason
        if self._asking == "all":
            return f"Tool '{request.tool_name}' is about to run."
        is_trusted = "read" in request.tags or (self._asking == "auto" and request.tool_name in self._own)
        return "" if is_trusted else f"Tool '{request.tool_name}' does not only read."
