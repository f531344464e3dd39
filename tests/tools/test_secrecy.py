"""What is a secret by its name, and what is left of a text without it."""

from collections.abc import Sequence

import pytest

from toolkit import ImageBlock, TextBlock, ToolOutput
from toolkit.tools.secrecy import program_name, redacted, secrets_in_arguments, secrets_of, without_secrets


def test_values_are_secrets_by_their_names() -> None:
    values = {"API_KEY": "s3cret", "Authorization": "Bearer t0ken", "MODE": "plain", "USE_AUTH": "true"}
    assert set(secrets_of(values)) == {"s3cret", "Bearer t0ken", "t0ken"}


@pytest.mark.parametrize(
    ("arguments", "secrets"),
    [
        (["--api-key", "s3cret", "--verbose", "yes"], {"s3cret"}),
        (["run", "--token=a=b", "--key"], {"a=b", ""}),
        (["key", "value"], set[str]()),
        ([], set[str]()),
    ],
    ids=["after an option", "in an option", "no option", "none"],
)
def test_arguments_are_secrets_by_their_options(arguments: Sequence[str], secrets: set[str]) -> None:
    assert set(secrets_in_arguments(arguments)) == secrets


def test_longer_secrets_are_struck_out_before_those_that_they_hold_and_short_ones_stay() -> None:
    assert without_secrets("abcdef, abcd, abc", ["abcd", "abcdef", "abc", ""]) == "***, ***, abc"


def test_an_output_is_redacted_all_through() -> None:
    output = ToolOutput((TextBlock("a KEY"), ImageBlock(b"KEY")), details={"said": ["KEY", 1, None]})
    assert redacted(output, lambda text: text.replace("KEY", "***")) == ToolOutput(
        (TextBlock("a ***"), ImageBlock(b"KEY")), details={"said": ["***", 1, None]}
    )


@pytest.mark.parametrize(
    ("command", "arguments", "name"),
    [
        ("npx", ["-y", "@modelcontextprotocol/server-everything"], "server-everything"),
        ("/usr/bin/python3.12", ["-m", "mcp_server_time"], "mcp_server_time"),
        ("ruby", ["./plugins/template.rb"], "template.rb"),
        ("./weather", ["--key", "s3cret"], "weather"),
        ("python", ["-c", "print('s3cret')"], "python"),
    ],
)
def test_a_program_is_called_by_what_can_hold_no_secret(command: str, arguments: Sequence[str], name: str) -> None:
    assert program_name(command, arguments) == name
