"""What is left of a tool's output without its secrets."""

from toolkit import ToolOutput
from toolkit.calls.output import redacted
from toolkit.chat import ImageBlock, TextBlock


def test_an_output_is_redacted_all_through() -> None:
    output = ToolOutput((TextBlock("a KEY"), ImageBlock(b"KEY")), details={"said": ["KEY", 1, None]})
    assert redacted(output, lambda text: text.replace("KEY", "***")) == ToolOutput(
        (TextBlock("a ***"), ImageBlock(b"KEY")), details={"said": ["***", 1, None]}
    )
