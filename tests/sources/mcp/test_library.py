"""Resources, their templates, prompts and completions of a server of the SDK's, as values."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp.types as wire
import pytest
from mcp.server.mcpserver import MCPServer

from tests.serving.test_mcp import ERAS, Era, InMemory
from toolkit.chat import FileBlock, TextBlock
from toolkit.errors import McpError
from toolkit.sources import ServerLimits
from toolkit.sources.mcp import McpTools, mcp_tools

pytestmark = pytest.mark.anyio

PAGE = "library://{book}/pages/{page}"


def make_library() -> MCPServer[Any]:
    library: MCPServer[Any] = MCPServer("library")

    @library.resource(PAGE)
    def read_page(book: str, page: str) -> str:
        return f"page {page} of {book}"

    @library.resource("library://search{?word,language}")
    def search(word: str = "", language: str = "any") -> str:
        return f"{word} in {language}"

    @library.resource("library://cover", mime_type="application/pdf")
    def cover() -> bytes:
        return b"%PDF" * 100

    @library.prompt()
    def review(book: str, tone: str = "kind") -> str:
        return f"Review {book}, and be {tone}."

    @library.completion()  # type: ignore[no-untyped-call, untyped-decorator]  # the SDK gives it no types
    async def complete(
        ref: wire.PromptReference | wire.ResourceTemplateReference,
        argument: wire.CompletionArgument,
        context: wire.CompletionContext | None,
    ) -> wire.Completion:
        known = (context.arguments or {}) if context is not None else {}
        books = [book for book in ("Emma", "Emil", "Persuasion") if book.startswith(argument.value)]
        values = books if argument.name == "book" else [f"{known.get('book', 'no book')}: 1"]
        return wire.Completion(values=values, total=len(values))

    return library


@asynccontextmanager
async def reading(era: Era = "modern", **options: Any) -> AsyncGenerator[McpTools]:
    server = InMemory(make_library()._lowlevel_server, era)  # pyright: ignore[reportPrivateUsage]
    with anyio.fail_after(240):
        async with mcp_tools(server, **options) as tools:
            yield tools


@pytest.mark.parametrize("era", ERAS)
async def test_resources_templates_and_prompts_are_values(era: Era) -> None:
    async with reading(era) as tools:
        templates = {each.uri_template for each in await tools.resource_templates()}
        page = await tools.read_resource(PAGE, {"book": "a/b & c", "page": "7"})
        found = await tools.read_resource("library://search{?word,language}", {"word": "sea"})
        (listed,) = await tools.resources()
        cover = await tools.read_resource(str(listed.uri))
        (message,) = await tools.prompt("review", {"book": "Emma"})
    assert templates == {PAGE, "library://search{?word,language}"}
    assert page == (TextBlock("page 7 of a/b & c"),)
    assert found == (TextBlock("sea in any"),)
    assert cover == (FileBlock(b"%PDF" * 100, name="cover", media_type="application/pdf"),)
    assert message.text == "Review Emma, and be kind."


@pytest.mark.parametrize(
    ("uri", "parameters", "words"),
    [
        (PAGE, {"book": "Emma"}, "it needs 'page'"),
        (PAGE, {"book": "Emma", "page": "1", "side": "2"}, "it has no parameter 'side', only 'book', 'page'"),
        (PAGE, {"book": "Emma", "page": 1}, "'page' must be str or a sequence of str, got int"),
        ("library://{book", {"book": "Emma"}, "Unclosed expression"),
        ("library://none/at/all", None, "library://none/at/all"),
    ],
    ids=["missing", "unknown", "a number", "no template", "no such resource"],
)
async def test_a_resource_that_can_not_be_read_is_an_error_that_names_what_is_wrong(
    uri: str, parameters: Any, words: str
) -> None:
    async with reading() as tools:
        with pytest.raises(McpError, match=f"could not read '{uri}'".replace("{", r"\{")) as failed:
            await tools.read_resource(uri, parameters)
        assert (await tools.read_resource(PAGE, {"book": "Emma", "page": "1"})) == (TextBlock("page 1 of Emma"),)
    assert words in str(failed.value)


async def test_a_resource_that_is_larger_than_the_limit_is_not_returned() -> None:
    async with reading(limits=ServerLimits(output_size=399)) as tools:
        with pytest.raises(
            McpError, match=r"could not read 'library://cover': it is too large: .* 400, and at most 399"
        ):
            await tools.read_resource("library://cover")


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("review", {}, "it needs 'book'"),
        ("review", {"title": "Emma"}, "it needs 'book'; it has no argument 'title', only 'book', 'tone'"),
        ("revue", {"book": "Emma"}, "there is none of that name; there are: 'review'"),
    ],
)
async def test_a_prompt_with_wrong_arguments_is_an_error_that_names_them(
    name: str, arguments: dict[str, str], words: str
) -> None:
    async with reading() as tools:
        with pytest.raises(McpError) as failed:
            await tools.prompt(name, arguments)
    assert str(failed.value) == f"MCP server 'in memory': could not get the prompt '{name}': {words}"


@pytest.mark.parametrize("era", ERAS)
async def test_arguments_of_prompts_and_templates_are_completed(era: Era) -> None:
    async with reading(era) as tools:
        (prompt,) = await tools.prompts()
        template = next(each for each in await tools.resource_templates() if each.uri_template == PAGE)
        assert await tools.complete(prompt, "book", "Em") == ["Emma", "Emil"]
        assert await tools.complete(template, "book", "P") == ["Persuasion"]
        assert await tools.complete(template, "page", known={"book": "Emma"}) == ["Emma: 1"]
        for of, kind in ((prompt, "the prompt 'review'"), (template, f"'{PAGE}'")):
            with pytest.raises(McpError) as failed:
                await tools.complete(of, "title")
            assert f"could not complete 'title' of {kind}: it has no argument 'title', only 'book'" in str(failed.value)


async def test_a_server_that_offers_none_of_these_is_an_error_that_says_so() -> None:
    bare: MCPServer[Any] = MCPServer("bare")
    with anyio.fail_after(240):
        async with mcp_tools(InMemory(bare._lowlevel_server)) as tools:  # pyright: ignore[reportPrivateUsage]
            prompt = wire.Prompt(name="review", arguments=[wire.PromptArgument(name="book")])
            with pytest.raises(McpError, match="could not complete 'book' of the prompt 'review'"):
                await tools.complete(prompt, "book")
