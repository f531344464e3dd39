"""Two tools to work with others: hand a task to a coworker, or ask one a question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, cast

from pydantic import AliasChoices, Field
from typing_extensions import Unpack

from toolkit.agents.sub_agents import SUB_AGENT_TAG, SubAgent, SubAgentRun
from toolkit.calls.context import ToolContext
from toolkit.calls.handler import Ctx
from toolkit.calls.options import ToolOptionKeywords
from toolkit.chat.output import ToolOutput
from toolkit.errors import ConfigurationError, ToolError
from toolkit.settings import check_setting
from toolkit.tools.decorators import tool_with_ctx
from toolkit.tools.function_tool import FunctionTool

__all__ = ["coworker_tools"]

_Name = Annotated[
    str,
    Field(description="The coworker, by name.", validation_alias=AliasChoices("coworker", "co_worker")),
]
_KNOWS_NOTHING = "They know nothing of your work, so tell them everything: don't refer to things, explain them."


def coworker_tools(
    coworkers: Iterable[SubAgent[Ctx]], **options: Unpack[ToolOptionKeywords]
) -> list[FunctionTool[Ctx, ..., Any]]:
    """Return the tools ``delegate_work`` and ``ask_question`` over these coworkers.

    ::

        clerk = SubAgent(name="clerk", provider=provider, registry=files, system_prompt="You know the files.")
        team = ToolRegistry(coworker_tools([clerk]))

    A model may write a name in another case, with other spaces or in quotes, and the first of a list in brackets
    counts. Whom it does not name rightly it is told, with the names that there are.

    Args:
        coworkers: At least one; the name of each is the role under which it is known.
        options: How both tools are run; see `ToolOptions`.

    Raises:
        ConfigurationError: There is no coworker, or two have one name.
    """
    team = list(coworkers)
    for coworker in team:
        check_setting("a coworker", coworker, SubAgent)
    names = ", ".join(coworker.name for coworker in team)
    by_name = {_normalize_name(coworker.name): coworker for coworker in team}
    if not team:
        raise ConfigurationError("coworker_tools needs at least one coworker")
    if len(by_name) < len(team):
        raise ConfigurationError(f"two coworkers have one name: {names}")

    async def delegate_work(
        ctx: ToolContext[Ctx],
        task: Annotated[str, Field(description="What is to be done.")],
        context: Annotated[str, Field(description="All that has to be known for it.")],
        coworker: _Name,
    ) -> ToolOutput:
        return await _ask_coworker(ctx, by_name, coworker, task, context)

    async def ask_question(
        ctx: ToolContext[Ctx],
        question: Annotated[str, Field(description="What you want to know.")],
        context: Annotated[str, Field(description="All that has to be known to answer.")],
        coworker: _Name,
    ) -> ToolOutput:
        return await _ask_coworker(ctx, by_name, coworker, question, context)

    options["tags"] = frozenset({SUB_AGENT_TAG, *options.get("tags", ())})
    options.setdefault("on_crash", "resume")
    descriptions: Sequence[tuple[Any, str]] = (
        (delegate_work, f"Hand a task to one of these coworkers: {names}. {_KNOWS_NOTHING}"),
        (ask_question, f"Ask one of these coworkers a question: {names}. {_KNOWS_NOTHING}"),
    )
    tools = [
        cast("FunctionTool[Ctx, ..., Any]", tool_with_ctx(description=description, **options)(function))
        for function, description in descriptions
    ]
    for made in tools:
        made.inner_registries = tuple(coworker.registry for coworker in team)
    return tools


async def _ask_coworker(
    ctx: ToolContext[Ctx], by_name: dict[str, SubAgent[Ctx]], coworker: str, task: str, context: str
) -> ToolOutput:
    asked = by_name.get(_normalize_name(coworker))
    if asked is None:
        options = "\n".join(f"- {name}" for name in by_name)
        raise ToolError(f"There is no coworker '{coworker}'. It must be one of these:\n{options}")
    output = await asked.run(ctx, f"{task}\n\nWhat you have to know for it:\n{context}" if context.strip() else task)
    if isinstance(output.details, SubAgentRun) and output.details.error is not None:
        return replace(output, content=f"The coworker '{asked.name}' could not do it. {output.text}")
    return output


def _normalize_name(name: str) -> str:
    """Return a coworker's name without what models do to names: ``[Writer, "Editor"]`` is ``writer``."""
    name = name.strip()
    if name.startswith("[") and name.endswith("]"):
        name = name[1:-1].split(",", maxsplit=1)[0]
    return " ".join(name.replace('"', "").split()).strip("' ").casefold()
