"""The model of a conversation: by its name, or a provider of the user's own in a Python file."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast

from toolkit.chat import Provider
from toolkit.cli.endings import CommandError, ExitCode
from toolkit.cli.progress import Steps
from toolkit.cli.user_modules import import_file
from toolkit.visible_text import escape_in_text

__all__ = ["open_model", "read_model"]

_MODEL_IN_FILE = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)")
_PRICED = ("openai", "openai-responses", "anthropic", "google")


def read_model(
    name: str, url: str, timeout: float, *, local_calling: Literal["native", "guided"] | None = None
) -> Provider:
    """Return the provider of a name such as ``openai:gpt-5-mini``, or what ``file.py:NAME`` holds or returns.

    Args:
        name: The model.
        url: Where a compatible server is; empty for the vendor's own.
        timeout: Seconds that the import of a file may take.
        local_calling: How a local model makes calls; None leaves it to the provider.

    Raises:
        ToolkitError: There is no such model, or no key for it.
    """
    file = _MODEL_IN_FILE.fullmatch(name)
    if file is not None:
        return _read_own_model(Path(file["path"]), file["name"], timeout)
    from toolkit.providers import provider_for  # noqa: PLC0415 - it brings packages that few commands need

    settings: dict[str, Any] = {"base_url": url} if url else {}
    kind = name.partition(":")[0].strip().lower()
    if local_calling is not None and kind == "local":
        settings["calling"] = local_calling
    provider = provider_for(name, **settings)
    if kind in _PRICED and find_spec("genai_prices") is not None:
        from toolkit.providers import PricedProvider  # noqa: PLC0415 - as above

        return PricedProvider(provider)
    return provider


@asynccontextmanager
async def open_model(provider: Provider, steps: Steps) -> AsyncGenerator[Provider]:
    """Start what has to be started, and close the provider after the block."""
    async with AsyncExitStack() as opened:
        inner: Any = getattr(provider, "provider", provider)
        if hasattr(inner, "start"):
            steps.begin("loading the model")
        if hasattr(inner, "__aenter__"):
            await opened.enter_async_context(inner)
        steps.end()
        yield provider


def _read_own_model(path: Path, name: str, timeout: float) -> Provider:
    module = import_file(path, timeout)
    found: Any = getattr(module, name, None)
    if callable(found) and not hasattr(found, "generate"):
        found = found()
    if not (hasattr(found, "generate") and hasattr(found, "stream")):
        raise CommandError(
            f"{escape_in_text(str(path))}:{name} is no model: name a Provider, or a function that returns one",
            ExitCode.MISUSED,
        )
    return cast("Provider", found)
