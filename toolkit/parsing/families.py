"""Families of models: how each writes calls, whether its template knows tools, and how it is best asked for calls.

Each row names where its facts stand. What is not known is None, and nothing is guessed.
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

from toolkit.dataclass import dataclass
from toolkit.parsing.forms import TextFormat

CallingWay: TypeAlias = Literal["native", "text", "guided"]
"""How a model is asked for calls: by its server's own tools, in text by a prompt, or by replies held to schemas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingAdvice:
    """The sampling that a model's makers recommend; None where they name nothing.

    Args:
        temperature: From 0.
        top_p: From 0 to 1.
        top_k: How many tokens are looked at.
        min_p: From 0 to 1.
        forbids_greedy: True where they warn of temperature 0.
    """

    temperature: float
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    forbids_greedy: bool = False

    def list_options(self) -> dict[str, float]:
        """Return all of it but the temperature, by the names that servers have for it."""
        values: dict[str, float | None] = {"top_p": self.top_p, "top_k": self.top_k, "min_p": self.min_p}
        return {name: value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        values = {"temperature": self.temperature, **self.list_options()}
        return ", ".join([f"{name} {value:g}" for name, value in values.items()])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """The facts about the models of one kind.

    Args:
        name: As its makers write it.
        pattern: A regular expression that is found in the names of its models, in small letters and with ``-`` for
            ``_`` and spaces.
        format: How it writes calls; ``hermes`` where that is not known, which most can follow.
        template_has_tools: True where the chat template that comes with it takes tools.
        calling: The best way of those that its template and format allow. Small models are asked in another way,
            whatever their family; see `advise_calling`.
        sampling: The sampling that its makers recommend.
        sources: Where the facts stand.
    """

    name: str
    pattern: str
    format: TextFormat = "hermes"
    template_has_tools: bool | None = None
    calling: CallingWay = "native"
    sampling: SamplingAdvice | None = None
    sources: tuple[str, ...]


_LLAMA_CPP = "https://github.com/ggml-org/llama.cpp/blob/master/docs/function-calling.md"
_VLLM = "https://github.com/vllm-project/vllm/blob/main/docs/features/tool_calling.md"
_META = "https://github.com/meta-llama/llama-models/blob/main/models"
_QWEN = "https://qwen.readthedocs.io/en/latest"
_R1 = "https://github.com/deepseek-ai/DeepSeek-R1#usage-recommendations"
_R1_SAMPLING = SamplingAdvice(temperature=0.6, top_p=0.95, forbids_greedy=True)


def _describe_plain(name: str, pattern: str, *, sources: tuple[str, ...] = (_LLAMA_CPP,), **facts: Any) -> ModelFamily:
    """Return a family whose template takes no tools, so that it is told of them in its prompt."""
    return ModelFamily(name=name, pattern=pattern, template_has_tools=False, calling="text", sources=sources, **facts)


FAMILIES: tuple[ModelFamily, ...] = (
    ModelFamily(
        name="DeepSeek-R1",
        pattern=r"deepseek-?r1(?!.*distill)",
        format="deepseek",
        sampling=_R1_SAMPLING,
        sources=(_R1, _VLLM),
    ),
    ModelFamily(name="DeepSeek", pattern=r"deepseek(?!.*distill)", format="deepseek", sources=(_VLLM, _LLAMA_CPP)),
    ModelFamily(
        name="Kimi K2",
        pattern=r"kimi|moonshot",
        format="kimi",
        template_has_tools=True,
        sampling=SamplingAdvice(temperature=0.6),
        sources=(
            "https://github.com/MoonshotAI/Kimi-K2/blob/main/docs/tool_call_guidance.md",
            "https://github.com/MoonshotAI/Kimi-K2/blob/main/README.md",
        ),
    ),
    ModelFamily(
        name="gpt-oss",
        pattern=r"gpt-?oss",
        format="harmony",
        sampling=SamplingAdvice(temperature=1.0, top_p=1.0),
        sources=("https://github.com/openai/gpt-oss#recommended-sampling-parameters", _VLLM),
    ),
    ModelFamily(
        name="MiniMax-M2",
        pattern=r"minimax-?m",
        format="minimax",
        template_has_tools=True,
        sampling=SamplingAdvice(temperature=1.0, top_p=0.95, top_k=40),
        sources=(
            "https://github.com/MiniMax-AI/MiniMax-M2/blob/main/README.md",
            "https://github.com/MiniMax-AI/MiniMax-M2/blob/main/docs/tool_calling_guide.md",
        ),
    ),
    _describe_plain("MiniMax", r"minimax", format="minimax"),
    ModelFamily(
        name="Phi-4-mini",
        pattern=r"phi-?4-mini",
        format="phi",
        sources=("https://ollama.com/library/phi4-mini/blobs/fa8235e5b48f",),
    ),
    _describe_plain("Phi-4", r"phi-?4", format="phi"),
    _describe_plain("Phi-3", r"phi-?3"),
    ModelFamily(
        name="Claude",
        pattern=r"claude",
        format="anthropic",
        sources=("https://platform.claude.com/docs/en/agents-and-tools/tool-use/implement-tool-use",),
    ),
    ModelFamily(name="GLM-4.5 and later", pattern=r"\bglm-?(4\.[5-9]|[5-9])", format="glm", sources=(_VLLM,)),
    _describe_plain("GLM-4", r"\bglm", format="glm"),
    ModelFamily(name="Qwen3-Coder", pattern=r"qwen-?3.*coder|coder.*qwen-?3", format="qwen", sources=(_VLLM,)),
    ModelFamily(
        name="Qwen3",
        pattern=r"qwen-?3",
        template_has_tools=True,
        sampling=SamplingAdvice(temperature=0.6, top_p=0.95, top_k=20, min_p=0.0, forbids_greedy=True),
        sources=(f"{_QWEN}/getting_started/quickstart.html", f"{_QWEN}/framework/function_call.html"),
    ),
    ModelFamily(
        name="Qwen2.5 and QwQ", pattern=r"qwen-?2\.5|qwq", template_has_tools=True, sources=(_VLLM, _LLAMA_CPP)
    ),
    _describe_plain("DeepSeek-R1-Distill", r"distill", sampling=_R1_SAMPLING, sources=(_R1, _LLAMA_CPP)),
    _describe_plain("Qwen", r"qwen"),
    ModelFamily(
        name="Hermes",
        pattern=r"hermes",
        template_has_tools=True,
        sources=("https://github.com/NousResearch/Hermes-Function-Calling", _VLLM),
    ),
    ModelFamily(
        name="Granite 4",
        pattern=r"granite-?4",
        template_has_tools=True,
        sources=("https://github.com/ibm-granite/granite-4.0-language-models", _VLLM),
    ),
    ModelFamily(name="Granite 3", pattern=r"granite-?3", sources=(_VLLM,)),
    ModelFamily(
        name="Mistral Nemo",
        pattern=r"mistral-?nemo",
        format="mistral",
        template_has_tools=True,
        sampling=SamplingAdvice(temperature=0.3),
        sources=("https://huggingface.co/mistralai/Mistral-Nemo-Instruct-2407/discussions/4", _LLAMA_CPP),
    ),
    _describe_plain("Mixtral and Codestral", r"mixtral|codestral", format="mistral"),
    ModelFamily(
        name="Mistral",
        pattern=r"mistral|ministral|magistral|devstral",
        format="mistral",
        sources=(_VLLM, _LLAMA_CPP),
    ),
    ModelFamily(
        name="Llama 4",
        pattern=r"llama-?4",
        format="pythonic",
        sources=(f"{_META}/llama4/prompt_format.md", _VLLM),
    ),
    ModelFamily(
        name="Llama 3.2",
        pattern=r"llama-?3\.2",
        format="pythonic",
        template_has_tools=True,
        sources=(f"{_META}/llama3_2/text_prompt_format.md", _LLAMA_CPP),
    ),
    ModelFamily(
        name="Llama 3.1 and 3.3",
        pattern=r"llama-?3\.[13]",
        format="llama",
        template_has_tools=True,
        sources=(f"{_META}/llama3_1/prompt_format.md", _LLAMA_CPP),
    ),
    _describe_plain("Llama 3", r"llama-?3", format="llama"),
    ModelFamily(
        name="Gemma 3",
        pattern=r"gemma-?3",
        format="pythonic",
        calling="text",
        sampling=SamplingAdvice(temperature=1.0, top_p=0.95, top_k=64, min_p=0.0),
        sources=(
            "https://ai.google.dev/gemma/docs/capabilities/function-calling",
            "https://huggingface.co/unsloth/gemma-3n-E4B-it-unsloth-bnb-4bit",
        ),
    ),
    _describe_plain("Gemma", r"gemma(?!-?[4-9])", format="pythonic"),
    ModelFamily(
        name="SmolLM3",
        pattern=r"smollm-?3",
        sampling=SamplingAdvice(temperature=0.6, top_p=0.95),
        sources=("https://huggingface.co/HuggingFaceTB/SmolLM3-3B",),
    ),
    _describe_plain(
        "SmolLM2",
        r"smollm",
        sampling=SamplingAdvice(temperature=0.2, top_p=0.9),
        sources=("https://huggingface.co/HuggingFaceTB/SmolLM2-1.7B-Instruct", _LLAMA_CPP),
    ),
    ModelFamily(name="Falcon 3", pattern=r"falcon-?3", template_has_tools=True, sources=(_LLAMA_CPP,)),
    _describe_plain("TinyLlama", r"tinyllama"),
)
"""The families; the first whose pattern is found in a model's name counts."""


def find_family(model: str) -> ModelFamily | None:
    """Return the family that a model's name tells, such as ``qwen3:8b`` or ``Qwen/Qwen3-8B-GGUF``; None if unknown."""
    name = model.casefold().replace("_", "-").replace(" ", "-")
    return next((family for family in FAMILIES if re.search(family.pattern, name)), None)


def format_of_model(model: str) -> TextFormat:
    """Return the format of the family that a model's name tells; ``hermes``, which most can follow, for all others."""
    family = find_family(model)
    return "hermes" if family is None else family.format
