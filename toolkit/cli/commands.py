"""The interface: each command with its arguments and options. What they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from toolkit.cli.evaluation_commands import eval_command
from toolkit.cli.options import (
    log_option,
    output_option,
    source_argument,
    source_options,
    sources_argument,
    tool_argument,
    traceback_option,
)
from toolkit.cli.runs_commands import runs_group
from toolkit.cli.screen import OutputFormat
from toolkit.cli.worker_command import worker_command

__all__ = ["command_line"]

_FILE_PATH = click.Path(dir_okay=False, path_type=Path)
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_EPILOG = """\b
SOURCE is one word that says where tools come from:
  file.py[:NAME]         Python: all tools in a file, or one, or a registry
  package.module[:NAME]  the same, by the name of a module
  tools.yaml             a file of tools: presets and plugins
  openapi:FILE|URL       the operations of an OpenAPI document
  mcp:COMMAND|URL        an MCP server: a program, in quotes, or a URL
  plugin:COMMAND         a program that speaks the plugin protocol
  coding[:FOLDER]        bash and five tools for files, over a folder

\b
Exit codes: 0 done, 1 failed, 2 wrong command, source or arguments,
3 not approved, 130 ended by Ctrl-C, 143 by a signal."""


class _CommandGroup(click.Group):
    """Asks whether another command was meant where there is none of a name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            from toolkit.suggestions import ask_whether_meant, find_similar  # noqa: PLC0415 - it brings difflib

            commands = self.list_commands(ctx)
            question = ask_whether_meant(find_similar(name, commands, most=1))
            ctx.fail(f"there is no command '{name}'; {question or 'there are ' + ', '.join(commands)}")
        return super().resolve_command(ctx, args)


def _show_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: ARG001 - as Click calls it
    if value:
        from importlib.metadata import version  # noqa: PLC0415 - slow to import

        click.echo(f"toolkit {version('toolkit-sdk')}")
        ctx.exit()


@click.group(cls=_CommandGroup, context_settings=_CONTEXT, epilog=_EPILOG)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def command_line() -> None:
    """Tools for language models, from anywhere: list, check, call, talk with and serve them."""


@command_line.command("demo")
@output_option
@traceback_option
def demo_command(output: OutputFormat) -> int:
    """Have a model on this machine call functions: offline, without a key."""
    from toolkit.cli.screen import Screen  # noqa: PLC0415 - see the docstring of this module
    from toolkit.demo import run_demo  # noqa: PLC0415

    return run_demo(Screen(output).document if output == "json" else None)


@command_line.command("doctor")
@click.option("--model", "-m", "models", multiple=True, help="Ask this model for a word, too; may be repeated.")
@click.option("--model-url", "url", default="", metavar="URL", help="Where a server that is compatible with it is.")
@click.option("--probe", "is_probing", is_flag=True, help="Try with each --model in which ways it can call tools.")
@output_option
@traceback_option
def doctor_command(models: tuple[str, ...], url: str, is_probing: bool, output: OutputFormat) -> int:
    """Tell which extras, keys, programs and engines are there and work, and how models are best asked for calls."""
    from toolkit.cli.diagnosis import examine_installation  # noqa: PLC0415 - see the docstring of this module

    return examine_installation(models, url, output, is_probing=is_probing)


@command_line.command("replay")
@click.argument("cassette", type=_FILE_PATH)
@click.option("--tools", "sources", multiple=True, metavar="SOURCE", help="Ask again, with these tools.")
@click.option("--yes", "-y", is_flag=True, help="Ask about no call, and run all.")
@source_options
@output_option
def replay_command(cassette: Path, sources: tuple[str, ...], yes: bool, output: OutputFormat, **settings: Any) -> int:
    """Show what was recorded with a model in CASSETTE.

    With --tools the same questions are asked again, offline: the recorded model answers, the tools run for real, and
    the exit code is 1 where they make it go another way.
    """
    from toolkit.cli.replaying import replay_cassette  # noqa: PLC0415 - see the docstring of this module

    return replay_cassette(cassette, sources, output, settings, is_approved=yes)


@command_line.command("tools")
@source_argument
@click.argument("name", required=False)
@source_options
@output_option
def list_command(source: str, name: str | None, output: OutputFormat, **settings: Any) -> int:
    """List the tools of SOURCE, or show the schema of one."""
    from toolkit.cli.listing import list_tools  # noqa: PLC0415 - see the docstring of this module

    return list_tools(source, name, output, settings)


@command_line.command("lint")
@source_argument
@source_options
@output_option
def lint_command(source: str, output: OutputFormat, **settings: Any) -> int:
    """Tell what is legal about the tools of SOURCE and still makes models fail.

    Of a package, all of its modules are looked at. The exit code is 1 where there is anything to tell.
    """
    from toolkit.cli.checking import lint_tools  # noqa: PLC0415 - see the docstring of this module

    return lint_tools(source, output, settings)


@command_line.command("chat")
@sources_argument
@click.option(
    "--model",
    "-m",
    required=True,
    envvar="TOOLKIT_CHAT_MODEL",
    show_envvar=True,
    help="Such as openai:gpt-5-mini, anthropic:..., google:..., local: (offline, without a key), or FILE.py:NAME.",
)
@click.option("--model-url", "url", default="", metavar="URL", help="Where a server that is compatible with it is.")
@click.option("--prompt", "-p", default="", help="Ask this one question, and end.")
@click.option("--system", "instructions", default="", metavar="TEXT", help="Instructions for the model.")
@click.option(
    "--ask",
    "asking",
    type=click.Choice(["auto", "needed", "writes", "all"]),
    default="auto",
    help="Which calls you are asked about: those whose tools want it (needed), also those of tools that do not only "
    "read (writes), or all. auto is 'needed' for your own Python, and 'writes' for tools from elsewhere.",
)
@click.option("--yes", "-y", "is_approved", is_flag=True, help="Ask about no call, and run all.")
@click.option("--continue", "transcript", type=_FILE_PATH, help="Go on from what /save wrote.")
@click.option("--record", "cassette", type=_FILE_PATH, help="Record what is said with the model, for `toolkit replay`.")
@log_option
@source_options
@output_option
def chat_command(
    sources: tuple[str, ...],
    model: str,
    url: str,
    prompt: str,
    instructions: str,
    asking: Any,
    is_approved: bool,
    transcript: Path | None,
    cassette: Path | None,
    log: Path | None,
    output: OutputFormat,
    **settings: Any,
) -> int:
    """Talk with a model that has the tools of each SOURCE.

    Without a terminal, the one question comes from --prompt or standard input, and what needs approval is refused.
    """
    from toolkit.cli.chatting import ChatSettings, chat_with_model  # noqa: PLC0415 - see the docstring of this module

    chat = ChatSettings(
        model=model,
        url=url,
        prompt=prompt,
        instructions=instructions,
        asking=asking,
        is_approved=is_approved,
        transcript=transcript,
        cassette=cassette,
        log=log,
        output=output,
    )
    return chat_with_model(sources, chat, settings)


@command_line.command("serve")
@sources_argument
@click.option(
    "--mcp", "transport", type=click.Choice(["stdio", "http"]), default="stdio", show_default=True, help="How."
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Where to listen; elsewhere than on loopback it takes --bearer-env and --allow-host.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option(
    "--bearer-env",
    "bearer_variable",
    default="",
    metavar="NAME",
    help="The variable that holds the token which clients must have.",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name, besides loopback, under which it is reached; may be repeated.",
)
@source_options
@output_option
def serve_command(
    sources: tuple[str, ...],
    transport: Any,
    host: str,
    port: int,
    bearer_variable: str,
    allowed_hosts: tuple[str, ...],
    output: OutputFormat,
    **settings: Any,
) -> int:
    """Serve the tools of each SOURCE as an MCP server."""
    from toolkit.cli.serving import ServerSettings, serve_tools  # noqa: PLC0415 - see the docstring of this module

    server = ServerSettings(
        transport=transport,
        host=host,
        port=port,
        bearer_variable=bearer_variable,
        allowed_hosts=allowed_hosts,
        output=output,
    )
    return serve_tools(sources, server, settings)


@command_line.command("call")
@source_argument
@tool_argument
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--json", "text", metavar="OBJECT", help="All arguments as a JSON object; '-' reads standard input.")
@click.option("--yes", "-y", is_flag=True, help="Run it without a question where it needs approval.")
@log_option
@source_options
@output_option
def call_command(
    source: str,
    name: str,
    pairs: tuple[str, ...],
    text: str | None,
    yes: bool,
    log: Path | None,
    output: OutputFormat,
    **settings: Any,
) -> int:
    """Call the tool NAME of SOURCE.

    A VALUE is text where the tool takes text, else JSON; a KEY that is repeated makes a list.
    """
    from toolkit.cli.calling import CallSettings, call_tool_once  # noqa: PLC0415 - see the docstring of this module

    call = CallSettings(name=name, pairs=pairs, text=text, is_approved=yes, log=log, output=output)
    return call_tool_once(source, call, settings)


command_line.add_command(eval_command)
command_line.add_command(worker_command)
command_line.add_command(runs_group)
