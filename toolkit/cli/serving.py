"""The command ``serve``: the tools of sources as an MCP server."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import anyio

from toolkit.cli.endings import CommandError, ExitCode
from toolkit.cli.progress import Steps
from toolkit.cli.screen import OutputFormat, Screen
from toolkit.cli.sources import SourceSettings, leave_out_unusable, open_sources, read_source, read_variable
from toolkit.cli.terminal import Terminal
from toolkit.dataclass import dataclass
from toolkit.tools.registry import ToolRegistry

__all__ = ["ServerSettings", "serve_tools"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The options of ``serve``.

    Args:
        transport: Standard input and output, or streamable HTTP.
        host: Where to listen.
        port: Where to listen; 0 takes one that is free.
        bearer_variable: The name of the variable with the token that clients must have; empty for none.
        allowed_hosts: Names besides loopback under which it is reached.
        output: How the URL is written.
    """

    transport: Literal["stdio", "http"]
    host: str = "127.0.0.1"
    port: int = 8000
    bearer_variable: str = ""
    allowed_hosts: Sequence[str] = ()
    output: OutputFormat = "text"


def serve_tools(words: Sequence[str], server: ServerSettings, settings: dict[str, Any]) -> int:
    """Serve the tools until the client ends it, or Ctrl-C."""
    if server.transport == "stdio" and server.output == "json":
        raise CommandError("--output json is for --mcp http: on stdio there is the protocol alone", ExitCode.MISUSED)
    read = SourceSettings(**settings)
    sources = [read_source(word, read) for word in words]
    screen = Screen("json" if server.transport == "stdio" else server.output)  # nothing but the protocol goes there
    if server.transport == "stdio" and sys.stdin.isatty():
        screen.note("speaking MCP on standard input and output: a client starts this; --mcp http is reached by a URL")

    async def main() -> int:
        with Steps(is_shown=sys.stderr.isatty()) as steps:
            async with open_sources(sources, steps) as tools:
                registry = leave_out_unusable(tools.registry, screen.note)
                name = "+".join(source.label for source in sources)
                if server.transport == "http":
                    await _serve_http(registry, name, server, screen)
                else:
                    from toolkit.serving.mcp import serve_mcp  # noqa: PLC0415 - the other needs other parts of it

                    await serve_mcp(registry, None, name=name)
        return ExitCode.DONE

    return Terminal().run(main)


async def _serve_http(registry: ToolRegistry[Any], name: str, server: ServerSettings, screen: Screen) -> None:
    from toolkit.serving.mcp import serve_mcp_http  # noqa: PLC0415 - the other needs other parts of it

    bearer = read_variable(server.bearer_variable, "--bearer-env") if server.bearer_variable else None
    serve = partial(
        serve_mcp_http,
        registry,
        None,
        host=server.host,
        port=server.port,
        name=name,
        bearer=bearer,
        allowed_hosts=server.allowed_hosts,
    )
    failures: list[OSError] = []

    async def serve_it(*, task_status: Any) -> None:
        try:
            await serve(task_status=task_status)
        except OSError as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        try:
            url: str = await tasks.start(serve_it)
        except RuntimeError:
            if not failures:
                raise
        else:
            screen.say(url)
            if screen.is_json:
                screen.document({"url": url, "tools": len(registry)}, is_line=True)
            screen.note(f"serving {len(registry)} tools over MCP; Ctrl-C ends it")
    for failure in failures:
        raise CommandError(_explain_port(failure, server)) from failure


def _explain_port(error: OSError, server: ServerSettings) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {server.port} is in use: choose another by --port, or 0 for one that is free"
    if error.errno == errno.EACCES:
        return f"port {server.port} may not be taken by this user: choose one above 1023 by --port"
    return f"{server.host}:{server.port} can't be listened on: {os.strerror(error.errno or 0)}"
