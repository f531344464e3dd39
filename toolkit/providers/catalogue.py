"""Providers by name: what ``"anthropic:claude-..."`` means, and how a model is asked for calls.

No SDK is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from importlib import import_module
from typing import Any, Literal, Protocol, Self, TypeAlias, cast, get_args

from toolkit.chat import ChatRequest, ChatResponse, Provider, StreamEvent
from toolkit.chat.provider import ProviderWrapper
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.providers.servers import SERVERS
from toolkit.settings import check_setting
from toolkit.suggestions import ask_whether_meant, find_similar

# What people write, and how models of a provider begin.
_OTHER_NAMES = {
    "claude": "anthropic",
    "gemini": "google",
    "genai": "google",
    "gpt": "openai",
    "chatgpt": "openai",
    "llama": "local",
    "gguf": "local",
}
CallingChoice: TypeAlias = Literal["auto", "native", "text", "guided"]
"""A way to ask a model for calls; ``auto`` is the best one, by the model's name or file."""


class ClosableProvider(Provider, AbstractAsyncContextManager["ClosableProvider", None], Protocol):
    """A provider with connections: closed by `aclose`, or by leaving ``async with``."""

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the next request makes new ones."""
        ...


@dataclass(frozen=True, slots=True)
class _Entry:
    module: str
    name: str
    example: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


_ENTRIES = {
    "openai": _Entry("toolkit.providers.openai", "OpenAIProvider", "openai:gpt-5-mini"),
    "openai-responses": _Entry("toolkit.providers.openai", "OpenAIResponsesProvider", "openai-responses:gpt-5-mini"),
    "anthropic": _Entry("toolkit.providers.anthropic", "AnthropicProvider", "anthropic:claude-sonnet-4-5"),
    "google": _Entry("toolkit.providers.google", "GoogleProvider", "google:gemini-2.5-flash"),
    "local": _Entry("toolkit.providers.local", "LocalProvider", "local:"),
    "anthropic-bedrock": _Entry(
        "toolkit.providers.anthropic", "anthropic_on_bedrock", "anthropic-bedrock:anthropic.claude-sonnet-4-5"
    ),
    "anthropic-vertex": _Entry(
        "toolkit.providers.anthropic", "anthropic_on_vertex", "anthropic-vertex:claude-sonnet-4-5"
    ),
    "vertex": _Entry("toolkit.providers.google", "GoogleProvider", "vertex:gemini-2.5-flash", {"vertexai": True}),
    "bedrock": _Entry("toolkit.providers.bedrock", "BedrockProvider", "bedrock:amazon.nova-lite-v1:0"),
    **{
        name: _Entry("toolkit.providers.openai", "OpenAIProvider", f"{name}:{server.example}", {"server": server})
        for name, server in SERVERS.items()
        if name != "openai"
    },
    "azure-responses": _Entry(
        "toolkit.providers.openai",
        "OpenAIResponsesProvider",
        "azure-responses:my-deployment",
        {"server": SERVERS["azure"]},
    ),
}
_OF_ONE_VENDOR = frozenset({"openai", "azure"})


def provider_for(name: str, *, calling: CallingChoice | None = None, **settings: Any) -> ClosableProvider:
    """Return the provider of a name: ``openai:gpt-5-mini``, ``groq:openai/gpt-oss-120b``, ``local:``.

    ::

        provider = provider_for("openai:qwen3", base_url="http://127.0.0.1:11434/v1")

    The text before the first colon selects the provider; the rest is the model's name on its server:
    ``openai`` (chat completions), ``openai-responses``, ``anthropic``, ``google``, ``local``, which needs no model
    and else takes the path of a GGUF file, and each server of `toolkit.providers.servers.SERVERS`, such as ``azure``,
    ``groq``, ``mistral`` and ``ollama``. The SDK is imported here, not before.

    Args:
        name: The provider and the model.
        calling: How the model is asked for calls: ``native`` by the server's own tools, ``text`` by `TextToolProvider`,
            ``guided`` by `GuidedProvider`, ``auto`` by what `toolkit.parsing.advise_calling` says of its name, or of
            its file; for native tools of a known family it also takes the calls that the model writes as text. None is
            ``native``, and for ``local`` what that provider does by itself.
        settings: For the provider's class, such as ``api_key``, ``base_url``, ``timeout``.

    Raises:
        ConfigurationError: There is no such provider or way, or no model is named; the message suggests similar names.
        ModuleNotFoundError: The SDK is not installed; it names the extra.
        ProviderAuthError: There is no key.
    """
    check_setting("the name of a provider", name, str)
    prefix, colon, model = name.partition(":")
    prefix = prefix.strip().lower()
    entry = _ENTRIES.get(prefix)
    if entry is None:
        raise ConfigurationError(_describe_unknown(name, prefix, has_model=bool(colon)))
    model = model.strip()
    if not model and prefix != "local":
        raise ConfigurationError(f"'{name}' names no model: say which one, as in '{entry.example}'")
    check_setting("the calling of a provider", calling, None, *get_args(CallingChoice))
    make = getattr(import_module(entry.module), entry.name)
    if prefix == "local" and calling not in (None, "auto"):
        settings["calling"] = "guided" if calling == "guided" else "native"
    settings = {**entry.settings, **settings}
    provider = make(model, **settings) if model else make(**settings)
    way: str | None = calling
    if prefix == "local" and calling != "text":  # it does that itself
        way = None
    elif calling == "auto":
        serves_others = prefix in SERVERS and (prefix not in _OF_ONE_VENDOR or "base_url" in settings)
        way = find_best_way(model) if serves_others else "native"
    return cast("ClosableProvider", wrap_provider(provider, way, model))


def _describe_unknown(name: str, prefix: str, *, has_model: bool) -> str:
    begins = next((own for other, own in _OTHER_NAMES.items() if prefix.startswith(other)), None)
    if not has_model and begins is not None:
        return f"'{name}' names no provider: {ask_whether_meant([f'{begins}:{name}'])}"
    near = find_similar(prefix, _ENTRIES, most=2, cutoff=0.6) or ((begins,) if begins else ())
    if near:
        hint = ask_whether_meant(f"{other}:" for other in near)
    else:
        hint = "there are " + ", ".join([f"'{other}:'" for other in _ENTRIES])
        hint += "; a server that speaks OpenAI's chat completions is 'openai:' with a base_url."
    what = f"no provider is named '{prefix}'" if has_model else f"'{name}' names no provider"
    return f"{what}; {hint} A name is the provider and the model, as in 'openai:gpt-5-mini'"


def find_best_way(model: str) -> str:
    """Return the best way for a model of that name; ``native_or_text`` for native tools and calls of a known format."""
    from toolkit.parsing.provider import advise_calling  # noqa: PLC0415 - few programs ask for it

    advice = advise_calling(model)
    return "native_or_text" if advice.way == "native" and advice.family is not None else advice.way


def ask_in_way(provider: Provider, way: str | None, model: str) -> Provider:
    """Return a provider that asks another one in a way; that one itself where nothing is to do."""
    if way in ("text", "native_or_text"):
        from toolkit.parsing.provider import TextToolProvider  # noqa: PLC0415 - few programs ask for it

        return TextToolProvider(provider, model=model, tools="prompt" if way == "text" else "native")
    if way == "guided":
        from toolkit.guided import GuidedProvider  # noqa: PLC0415 - few programs ask for it

        return provider if isinstance(provider, GuidedProvider) else GuidedProvider(provider)
    return provider


def wrap_provider(provider: Any, way: str | None, model: str) -> Any:
    """Do what `ask_in_way` does, and close the provider with its wrapper."""
    wrapper = ask_in_way(provider, way, model)
    return provider if wrapper is provider else _ClosingWrapper(wrapper, provider)


class _ClosingWrapper(ProviderWrapper):
    """A wrapped provider that is closed with its wrapper, its only user."""

    def __init__(self, wrapper: Provider, wrapped: Any) -> None:
        super().__init__(wrapper)
        self._wrapped = wrapped

    def __repr__(self) -> str:
        return repr(self._provider)

    async def __aenter__(self) -> Self:
        await self._wrapped.__aenter__()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._wrapped.__aexit__(*failure)

    async def aclose(self) -> None:
        """Close the connections of the provider within."""
        await self._wrapped.aclose()

    async def generate(self, request: ChatRequest) -> ChatResponse:
        """Return the answer."""
        return await self._provider.generate(request)

    def stream(self, request: ChatRequest) -> AsyncIterator[StreamEvent]:
        """Return the answer as it comes."""
        return self._provider.stream(request)
