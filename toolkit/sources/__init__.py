"""Tools from elsewhere, each as values for a registry, and the limits of each place that they come from."""

from toolkit.calls.registration import UsageCounter
from toolkit.chat.output import ToolOutput
from toolkit.dataclass import dataclass
from toolkit.errors import ToolFailedError
from toolkit.settings import PositiveInt, Seconds, check_fields

__all__ = ["ServerLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The limits of one MCP server, API or plugin.

    Args:
        timeout: Seconds for a call, and for a document that describes the API.
        output_size: The characters of text and the bytes of files that an output may have together; a larger one is
            an error that the model reads.
        calls: The calls of all tools together in a run, or outside of runs; None sets no limit.
        pages: The pages of a list of tools, resources or prompts.

    Raises:
        ConfigurationError: A limit that can't be.
    """

    timeout: Seconds = 60.0
    output_size: PositiveInt = 16 * 2**20
    calls: PositiveInt | None = None
    pages: PositiveInt = 100

    def __post_init__(self) -> None:
        check_fields(self)

    def make_counter(self) -> UsageCounter | None:
        """Return what counts the calls of all tools together; None where they are not counted."""
        return None if self.calls is None else UsageCounter(self.calls)

    def check_output(self, output: ToolOutput) -> ToolOutput:
        """Return an output that is not too large.

        Raises:
            ToolFailedError: It is.
        """
        blocks = () if isinstance(output.content, str) else output.content
        size = len(output.text) + sum(len(getattr(block, "data", None) or b"") for block in blocks)
        if size > self.output_size:
            failure = f"the call ran, but its output has a size of {size:,}, and at most {self.output_size:,} is taken"
            raise ToolFailedError(failure)
        return output
