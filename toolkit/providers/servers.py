"""Servers that speak OpenAI's formats, by name: where they are, which key is theirs, and what their dialect lacks.

Plain data: an adapter reads it, `toolkit.providers.provider_for` finds rows by name, and the table in
``docs/providers.md`` is made from it. A server of one's own is a row, too: ``OpenAIProvider("qwen3",
server=CompatibleServer(...))``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from urllib.parse import urlsplit

from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.providers.encoding import ChatDialect


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatibleServer:
    """A server that speaks chat completions, and maybe responses.

    Args:
        name: As in ``provider_for("groq:...")``, and in errors.
        title: Its name in the documentation.
        base_url: Where it is; empty if each user has another.
        url_variable: The environment variable with another address; empty if there is none.
        url_path: Added to the address of the variable, where that has only the host.
        key_variables: The environment variables with its key, the most usual one last. Empty if it needs none.
        hosts: Those that the key of the environment may be sent to, and those within them. A server on this machine
            needs none.
        dialect: The abilities of the server.
        source: Where its documentation says so.
        example: A model that it serves.
    """

    name: str
    title: str
    base_url: str = ""
    url_variable: str = ""
    url_path: str = ""
    key_variables: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    dialect: ChatDialect = field(default_factory=ChatDialect)
    source: str = ""
    example: str = ""

    def find_url(self) -> str:
        """Return its address: that of the environment variable, else its usual one.

        Raises:
            ConfigurationError: There is none.
        """
        found = os.environ.get(self.url_variable, "") if self.url_variable else ""
        if found:
            return found if self.url_path in found else f"{found.rstrip('/')}{self.url_path}"
        if not self.base_url:
            raise ConfigurationError(
                f"{self.title} has another address for each user: pass base_url, or set {self.url_variable}"
            )
        return self.base_url


OPENAI_CHAT = ChatDialect(is_openai=True, max_tokens_field="max_completion_tokens", reasoning_field=None)
COMPATIBLE_CHAT = ChatDialect()
_REASONING = ChatDialect(reasoning_field="reasoning")
_ROWS = (
    CompatibleServer(
        name="openai",
        title="OpenAI",
        base_url="https://api.openai.com/v1",
        url_variable="OPENAI_BASE_URL",
        key_variables=("OPENAI_API_KEY",),
        hosts=("openai.com",),
        dialect=OPENAI_CHAT,
        source="https://platform.openai.com/docs/api-reference/chat",
        example="gpt-5-mini",
    ),
    CompatibleServer(
        name="azure",
        title="Azure OpenAI",
        url_variable="AZURE_OPENAI_ENDPOINT",
        url_path="/openai/v1",
        key_variables=("AZURE_OPENAI_API_KEY",),
        hosts=("azure.com", "azure.us", "azure.cn"),
        dialect=OPENAI_CHAT,
        source="https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle",
        example="my-deployment",
    ),
    CompatibleServer(
        name="groq",
        title="Groq",
        base_url="https://api.groq.com/openai/v1",
        key_variables=("GROQ_API_KEY",),
        hosts=("groq.com",),
        dialect=_REASONING,
        source="https://console.groq.com/docs/openai",
        example="openai/gpt-oss-120b",
    ),
    CompatibleServer(
        name="mistral",
        title="Mistral",
        base_url="https://api.mistral.ai/v1",
        key_variables=("MISTRAL_API_KEY",),
        hosts=("mistral.ai",),
        dialect=ChatDialect(
            call_id=re.compile("[A-Za-z0-9]{9}"),
            longest_call_id=9,
            reasoning_field=None,
            seed_field="random_seed",
            required_choice="any",
            choices=frozenset({"required", "one"}),
            takes_stream_options=False,
            takes_extra=False,
        ),
        source="https://docs.mistral.ai/api",
        example="mistral-large-latest",
    ),
    CompatibleServer(
        name="xai",
        title="xAI",
        base_url="https://api.x.ai/v1",
        key_variables=("XAI_API_KEY",),
        hosts=("x.ai",),
        source="https://docs.x.ai/docs/api-reference",
        example="grok-4",
    ),
    CompatibleServer(
        name="deepseek",
        title="DeepSeek",
        base_url="https://api.deepseek.com",
        key_variables=("DEEPSEEK_API_KEY",),
        hosts=("deepseek.com",),
        dialect=ChatDialect(takes_schema=False, takes_strict=False, takes_parallel_switch=False),
        source="https://api-docs.deepseek.com/api/create-chat-completion",
        example="deepseek-chat",
    ),
    CompatibleServer(
        name="openrouter",
        title="OpenRouter",
        base_url="https://openrouter.ai/api/v1",
        key_variables=("OPENROUTER_API_KEY",),
        hosts=("openrouter.ai",),
        dialect=_REASONING,
        source="https://openrouter.ai/docs/api-reference/overview",
        example="anthropic/claude-sonnet-4.5",
    ),
    CompatibleServer(
        name="together",
        title="Together",
        base_url="https://api.together.xyz/v1",
        key_variables=("TOGETHER_API_KEY",),
        hosts=("together.xyz", "together.ai"),
        dialect=ChatDialect(reasoning_field="reasoning", takes_parallel_switch=False),
        source="https://docs.together.ai/docs/openai-api-compatibility",
        example="openai/gpt-oss-120b",
    ),
    CompatibleServer(
        name="fireworks",
        title="Fireworks",
        base_url="https://api.fireworks.ai/inference/v1",
        key_variables=("FIREWORKS_API_KEY",),
        hosts=("fireworks.ai",),
        source="https://docs.fireworks.ai/tools-sdks/openai-compatibility",
        example="accounts/fireworks/models/gpt-oss-120b",
    ),
    CompatibleServer(
        name="cerebras",
        title="Cerebras",
        base_url="https://api.cerebras.ai/v1",
        key_variables=("CEREBRAS_API_KEY",),
        hosts=("cerebras.ai",),
        dialect=ChatDialect(reasoning_field="reasoning", max_tokens_field="max_completion_tokens"),
        source="https://inference-docs.cerebras.ai/resources/openai",
        example="gpt-oss-120b",
    ),
    CompatibleServer(
        name="cohere",
        title="Cohere",
        base_url="https://api.cohere.ai/compatibility/v1",
        key_variables=("CO_API_KEY", "COHERE_API_KEY"),
        hosts=("cohere.ai", "cohere.com"),
        dialect=ChatDialect(
            reasoning_field=None,
            choices=frozenset({"none", "required"}),
            takes_parallel_switch=False,
            takes_stream_options=False,
            takes_extra=False,
        ),
        source="https://docs.cohere.com/docs/compatibility-api",
        example="command-a-03-2025",
    ),
    CompatibleServer(
        name="ollama",
        title="Ollama",
        base_url="http://127.0.0.1:11434/v1",
        url_variable="OLLAMA_BASE_URL",
        key_variables=("OLLAMA_API_KEY",),
        hosts=("ollama.com",),
        dialect=ChatDialect(reasoning_field="reasoning", takes_strict=False, takes_parallel_switch=False),
        source="https://docs.ollama.com/api/openai-compatibility",
        example="qwen3",
    ),
    CompatibleServer(
        name="vllm",
        title="vLLM",
        base_url="http://127.0.0.1:8000/v1",
        url_variable="VLLM_BASE_URL",
        key_variables=("VLLM_API_KEY",),
        dialect=_REASONING,
        source="https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html",
        example="Qwen/Qwen3-8B",
    ),
    CompatibleServer(
        name="lmstudio",
        title="LM Studio",
        base_url="http://127.0.0.1:1234/v1",
        dialect=ChatDialect(choices=frozenset({"none", "required"}), takes_parallel_switch=False),
        source="https://lmstudio.ai/docs/developer/openai-compat",
        example="qwen/qwen3-8b",
    ),
    CompatibleServer(
        name="llamacpp",
        title="llama.cpp",
        base_url="http://127.0.0.1:8080/v1",
        key_variables=("LLAMA_API_KEY",),
        dialect=ChatDialect(choices=frozenset({"none", "required"}), takes_strict=False),
        source="https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
        example="qwen3",
    ),
    CompatibleServer(
        name="litellm",
        title="LiteLLM proxy",
        base_url="http://127.0.0.1:4000/v1",
        url_variable="LITELLM_PROXY_API_BASE",
        key_variables=("LITELLM_PROXY_API_KEY",),
        source="https://docs.litellm.ai/docs/providers/litellm_proxy",
        example="gpt-5-mini",
    ),
)
SERVERS: Mapping[str, CompatibleServer] = {row.name: row for row in _ROWS}
"""Each known server by its name."""


def find_dialect(url: str) -> ChatDialect:
    """Return the dialect of the known server that a URL leads to; for others the most usual one."""
    host = f".{urlsplit(url).hostname or ''}"
    for server in _ROWS:
        if any(host.endswith(f".{own}") for own in server.hosts):
            return server.dialect
    return COMPATIBLE_CHAT
