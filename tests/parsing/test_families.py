"""The table of families, and how a model is asked for calls by what its name and its file tell."""

import re
from dataclasses import dataclass
from typing import Any

import pytest

from toolkit.parsing import CallingWay, TextFormat, advise_calling, find_family
from toolkit.parsing.wording import FAMILIES, find_format


@dataclass(frozen=True)
class Case:
    name: str
    family: str | None
    way: CallingWay
    format: TextFormat = "hermes"


CASES = [
    Case("Qwen/Qwen2.5-7B-Instruct", "Qwen2.5 and QwQ", "native"),
    Case("qwen2.5:0.5b", "Qwen2.5 and QwQ", "guided"),
    Case("Qwen2.5-7B-Instruct-1M", "Qwen2.5 and QwQ", "native"),
    Case("qwen3:8b", "Qwen3", "native"),
    Case("Qwen3-30B-A3B", "Qwen3", "native"),
    Case("Qwen3-Coder-30B-A3B-Instruct", "Qwen3-Coder", "native", "qwen"),
    Case("Qwen1.5-7B-Chat", "Qwen", "text"),
    Case("llama3.1:8b", "Llama 3.1 and 3.3", "native", "llama"),
    Case("llama3.2:1b", "Llama 3.2", "guided", "pythonic"),
    Case("Meta-Llama-3-8B-Instruct", "Llama 3", "text", "llama"),
    Case("Llama-4-Scout-17B-16E-Instruct", "Llama 4", "native", "pythonic"),
    Case("Mistral-Nemo-Instruct-2407", "Mistral Nemo", "native", "mistral"),
    Case("mixtral-8x7b", "Mixtral and Codestral", "text", "mistral"),
    Case("Ministral-8B-Instruct-2410", "Mistral", "native", "mistral"),
    Case("gemma3:27b", "Gemma 3", "text", "pythonic"),
    Case("gemma-3-270m-q4_k_m", "Gemma 3", "guided", "pythonic"),
    Case("gemma-2-9b-it", "Gemma", "text", "pythonic"),
    Case("gemma4:26b", None, "native"),
    Case("Phi-4-mini-instruct", "Phi-4-mini", "native", "phi"),
    Case("phi_4", "Phi-4", "text", "phi"),
    Case("Phi-3-mini-4k-instruct", "Phi-3", "text"),
    Case("DeepSeek-R1-0528", "DeepSeek-R1", "native", "deepseek"),
    Case("DeepSeek-V3.1", "DeepSeek", "native", "deepseek"),
    Case("DeepSeek-R1-Distill-Llama-8B", "DeepSeek-R1-Distill", "text"),
    Case("Kimi-K2-Instruct", "Kimi K2", "native", "kimi"),
    Case("gpt-oss:20b", "gpt-oss", "native", "harmony"),
    Case("MiniMax-M2", "MiniMax-M2", "native", "minimax"),
    Case("glm-4-9b-chat", "GLM-4", "text", "glm"),
    Case("GLM-4.6", "GLM-4.5 and later", "native", "glm"),
    Case("claude-sonnet-4-5", "Claude", "native", "anthropic"),
    Case("Hermes-3-Llama-3.1-8B", "Hermes", "native"),
    Case("granite-4.0-h-small", "Granite 4", "native"),
    Case("SmolLM2-135M-Instruct", "SmolLM2", "guided"),
    Case("SmolLM2-1.7B-Instruct", "SmolLM2", "text"),
    Case("SmolLM3-3B", "SmolLM3", "native"),
    Case("gpt-5-mini", None, "native"),
    Case("", None, "native"),
    Case("x" * 10_000, None, "native"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name[:30] or "no name")
def test_a_name_tells_the_family_its_format_and_the_best_way(case: Case) -> None:
    family = find_family(case.name)
    advice = advise_calling(case.name)
    assert (family.name if family else None, advice.way, advice.format) == (case.family, case.way, case.format)
    assert advice.family is family
    assert advice.reason


def test_each_row_can_be_found_and_names_its_sources() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    found = {case.family for case in CASES}
    for family in FAMILIES:
        assert re.compile(family.pattern)
        assert family.sources
        assert all(source.startswith("https://") for source in family.sources)
        assert find_format(family.format)
        if family.template_has_tools is False:
            assert family.calling != "native"
    unseen = {family.name for family in FAMILIES} - found
    assert unseen == {"Falcon 3", "Granite 3", "MiniMax", "TinyLlama"}


@pytest.mark.parametrize(
    ("metadata", "way", "written_as", "reason"),
    [
        ({}, "guided", "hermes", "it has no chat template"),
        ({"tokenizer.chat_template": ""}, "guided", "hermes", "it has no chat template"),
        ({"tokenizer.chat_template": 3}, "guided", "hermes", "it has no chat template"),
        ({"tokenizer.chat_template": "{{ messages }}"}, "guided", "hermes", "its chat template takes no tools"),
        (
            {"tokenizer.chat_template": "{{ messages }}", "general.name": "Gemma 3 4b It"},
            "text",
            "pythonic",
            "its chat template takes no tools",
        ),
        (
            {"tokenizer.chat_template": "{% if tools %}<tool_call>{% endif %}", "general.name": "Mine"},
            "native",
            "hermes",
            "its chat template takes tools",
        ),
        (
            {"tokenizer.chat_template": "{% if tools %}{{ tools }}", "general.name": "Gemma 3 4b It"},
            "text",
            "pythonic",
            "its chat template takes tools, and the family Gemma 3 writes its calls as text",
        ),
        (
            {"tokenizer.chat_template": "{% if tools %}[TOOL_CALLS]", "general.architecture": "llama"},
            "native",
            "mistral",
            "its chat template takes tools",
        ),
        (
            {"tokenizer.chat_template": "{% if tools %}<tool_call>", "general.size_label": "0.5B"},
            "guided",
            "hermes",
            "with 500 million parameters it rarely calls by itself",
        ),
        (
            {
                "tokenizer.chat_template": "{% if tools %}",
                "general.parameter_count": 2_000_000_000,
                "general.name": "1B",
            },
            "native",
            "hermes",
            "its chat template takes tools",
        ),
    ],
)
def test_what_a_file_says_goes_before_what_its_family_is_known_for(
    metadata: dict[str, Any], way: CallingWay, written_as: TextFormat, reason: str
) -> None:
    advice = advise_calling(metadata=metadata)
    assert (advice.way, advice.format, advice.reason) == (way, written_as, reason)


def test_sampling_is_written_for_people() -> None:
    family = find_family("qwen3")
    assert family is not None
    assert str(family.sampling) == "temperature 0.6, top_p 0.95, top_k 20, min_p 0"
