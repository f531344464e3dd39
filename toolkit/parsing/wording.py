"""The table of formats, with the forms of their calls and the texts of tools and results; and families of models.

The row of a family has the format of its calls, whether its template accepts tools, the best way to ask it for calls,
and the sources of these facts. Unknown facts are None; nothing is guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal, TypeAlias

from toolkit.calls.argument_repair import repair_arguments
from toolkit.chat import ToolCall, ToolDefinition, ToolResult
from toolkit.chat.request import describe_with_hints
from toolkit.dataclass import dataclass
from toolkit.errors import ConfigurationError
from toolkit.parsing import forms
from toolkit.parsing.forms import Form, TextFormat, decode_members
from toolkit.schema.nodes import Nodes, is_object
from toolkit.schema.problems import ExampleTooLargeError, make_example
from toolkit.settings import check_setting

CallingWay: TypeAlias = Literal["native", "text", "guided"]
"""How a model is asked for calls: by the tools of its server, by a prompt, or by replies held to schemas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingAdvice:
    """The sampling that the makers of a model recommend; None for what they don't name.

    Args:
        temperature: From 0.
        top_p: From 0 to 1.
        top_k: The number of candidate tokens.
        min_p: From 0 to 1.
        forbids_greedy: True if they warn of temperature 0.
    """

    temperature: float
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    forbids_greedy: bool = False

    def list_options(self) -> dict[str, float]:
        """Return all settings but the temperature, by the names that servers have for them."""
        values: dict[str, float | None] = {"top_p": self.top_p, "top_k": self.top_k, "min_p": self.min_p}
        return {name: value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        values = {"temperature": self.temperature, **self.list_options()}
        return ", ".join([f"{name} {value:g}" for name, value in values.items()])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFamily:
    """The facts about the models of one kind.

    Args:
        name: The name, as its makers write it.
        pattern: A regular expression for the names of its models, in small letters and with ``-`` for ``_`` and
            spaces.
        format: The format of its calls; ``hermes``, which most can follow, if it is unknown.
        template_has_tools: True if its chat template accepts tools.
        calling: The best way that its template and format allow. Small models of any family are asked in another way;
            see `advise_calling`.
        sampling: The sampling that its makers recommend.
        sources: The sources of the facts.
    """

    name: str
    pattern: str
    format: TextFormat = "hermes"
    template_has_tools: bool | None = None
    calling: CallingWay = "native"
    sampling: SamplingAdvice | None = None
    sources: tuple[str, ...]


# The tokens of chat templates, and the tags of thoughts and calls, of all models.
_TEMPLATE_TOKENS = (
    r"<[|\uff5c][\w\u2581 /.:-]{1,60}[|\uff5c]>|</?s>|<(?:start|end)_of_turn>|<(?:bos|eos|pad|unk)>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|CALL_ID|ARGS|THINK|IMG)\]|<</?SYS>>"
    r"|</?(?:tool_call|tool_calls|tool_response|tool_result|tools|function_call|function_calls|functioncall|function_results"
    r"|antml:[\w]+|minimax:tool_call|think|thinking|system|arg_key|arg_value)\b|</?(?:function|parameter|invoke)\b(?=[\s=>])"
    r"|</?\uff5cDSML\uff5c|\u25c1/?\w+\u25b7|\bfunctools(?=\[)"
)
_LARGE_MODEL = re.compile(r"gpt-(?:[4-9]|\d\d)(?:o|\.\d+)?|o\d+(?:-preview|-mini|-pro)?")
# The end of a model's name: the day of its release, or `latest`.
_MODEL_VERSION = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|\d{4}|latest)\Z")
_LLAMA_CPP = "https://github.com/ggml-org/llama.cpp/blob/master/docs/function-calling.md"
_VLLM = "https://github.com/vllm-project/vllm/blob/main/docs/features/tool_calling.md"
_META = "https://github.com/meta-llama/llama-models/blob/main/models"
_QWEN = "https://qwen.readthedocs.io/en/latest"
_KIMI = "https://github.com/MoonshotAI/Kimi-K2/blob/main"
_MINIMAX = "https://github.com/MiniMax-AI/MiniMax-M2/blob/main"
_GEMMA = "https://ai.google.dev/gemma/docs/capabilities/function-calling"
_GEMMA_FILE = "https://huggingface.co/unsloth/gemma-3n-E4B-it-unsloth-bnb-4bit"
_HERMES = "https://github.com/NousResearch/Hermes-Function-Calling"
_GRANITE = "https://github.com/ibm-granite/granite-4.0-language-models"
_NEMO = "https://huggingface.co/mistralai/Mistral-Nemo-Instruct-2407/discussions/4"
_PHI_FILE = "https://ollama.com/library/phi4-mini/blobs/fa8235e5b48f"
_CLAUDE = "https://platform.claude.com/docs/en/agents-and-tools/tool-use/implement-tool-use"
_GPT_OSS = "https://github.com/openai/gpt-oss#recommended-sampling-parameters"
_SMOLLM = "https://huggingface.co/HuggingFaceTB/SmolLM"
_R1 = "https://github.com/deepseek-ai/DeepSeek-R1#usage-recommendations"
_R1_SAMPLING = SamplingAdvice(temperature=0.6, top_p=0.95, forbids_greedy=True)
_QWEN_SAMPLING = SamplingAdvice(temperature=0.6, top_p=0.95, top_k=20, min_p=0.0, forbids_greedy=True)
_GEMMA_SAMPLING = SamplingAdvice(temperature=1.0, top_p=0.95, top_k=64, min_p=0.0)
_MINIMAX_SAMPLING = SamplingAdvice(temperature=1.0, top_p=0.95, top_k=40)


def _describe_family(name: str, pattern: str, *sources: str, **facts: Any) -> ModelFamily:
    return ModelFamily(name=name, pattern=pattern, sources=sources, **facts)


_describe_native = partial(_describe_family, template_has_tools=True)
_describe_plain = partial(_describe_family, template_has_tools=False, calling="text")

FAMILIES: tuple[ModelFamily, ...] = (
    _describe_family("DeepSeek-R1", r"deepseek-?r1(?!.*distill)", _R1, _VLLM, format="deepseek", sampling=_R1_SAMPLING),
    _describe_family("DeepSeek", r"deepseek(?!.*distill)", _VLLM, _LLAMA_CPP, format="deepseek"),
    _describe_native(
        *("Kimi K2", r"kimi|moonshot", f"{_KIMI}/docs/tool_call_guidance.md", f"{_KIMI}/README.md"),
        format="kimi",
        sampling=SamplingAdvice(temperature=0.6),
    ),
    _describe_family(
        *("gpt-oss", r"gpt-?oss", _GPT_OSS, _VLLM),
        format="harmony",
        sampling=SamplingAdvice(temperature=1.0, top_p=1.0),
    ),
    _describe_native(
        *("MiniMax-M2", r"minimax-?m", f"{_MINIMAX}/README.md", f"{_MINIMAX}/docs/tool_calling_guide.md"),
        format="minimax",
        sampling=_MINIMAX_SAMPLING,
    ),
    _describe_plain("MiniMax", r"minimax", _LLAMA_CPP, format="minimax"),
    _describe_family("Phi-4-mini", r"phi-?4-mini", _PHI_FILE, format="phi"),
    _describe_plain("Phi-4", r"phi-?4", _LLAMA_CPP, format="phi"),
    _describe_plain("Phi-3", r"phi-?3", _LLAMA_CPP),
    _describe_family("Claude", r"claude", _CLAUDE, format="anthropic"),
    _describe_family("GLM-4.5 and later", r"\bglm-?(4\.[5-9]|[5-9])", _VLLM, format="glm"),
    _describe_plain("GLM-4", r"\bglm", _LLAMA_CPP, format="glm"),
    _describe_family("Qwen3-Coder", r"qwen-?3.*coder|coder.*qwen-?3", _VLLM, format="qwen"),
    _describe_native(
        *("Qwen3", r"qwen-?3", f"{_QWEN}/getting_started/quickstart.html", f"{_QWEN}/framework/function_call.html"),
        sampling=_QWEN_SAMPLING,
    ),
    _describe_native("Qwen2.5 and QwQ", r"qwen-?2\.5|qwq", _VLLM, _LLAMA_CPP),
    _describe_plain("DeepSeek-R1-Distill", r"distill", _R1, _LLAMA_CPP, sampling=_R1_SAMPLING),
    _describe_plain("Qwen", r"qwen", _LLAMA_CPP),
    _describe_native("Hermes", r"hermes", _HERMES, _VLLM),
    _describe_native("Granite 4", r"granite-?4", _GRANITE, _VLLM),
    _describe_family("Granite 3", r"granite-?3", _VLLM),
    _describe_native(
        *("Mistral Nemo", r"mistral-?nemo", _NEMO, _LLAMA_CPP),
        format="mistral",
        sampling=SamplingAdvice(temperature=0.3),
    ),
    _describe_plain("Mixtral and Codestral", r"mixtral|codestral", _LLAMA_CPP, format="mistral"),
    _describe_family("Mistral", r"mistral|ministral|magistral|devstral", _VLLM, _LLAMA_CPP, format="mistral"),
    _describe_family("Llama 4", r"llama-?4", f"{_META}/llama4/prompt_format.md", _VLLM, format="pythonic"),
    _describe_native(
        "Llama 3.2", r"llama-?3\.2", f"{_META}/llama3_2/text_prompt_format.md", _LLAMA_CPP, format="pythonic"
    ),
    _describe_native(
        "Llama 3.1 and 3.3", r"llama-?3\.[13]", f"{_META}/llama3_1/prompt_format.md", _LLAMA_CPP, format="llama"
    ),
    _describe_plain("Llama 3", r"llama-?3", _LLAMA_CPP, format="llama"),
    _describe_family(
        "Gemma 3", r"gemma-?3", _GEMMA, _GEMMA_FILE, format="pythonic", calling="text", sampling=_GEMMA_SAMPLING
    ),
    _describe_plain("Gemma", r"gemma(?!-?[4-9])", _LLAMA_CPP, format="pythonic"),
    _describe_family("SmolLM3", r"smollm-?3", f"{_SMOLLM}3-3B", sampling=SamplingAdvice(temperature=0.6, top_p=0.95)),
    _describe_plain(
        *("SmolLM2", r"smollm", f"{_SMOLLM}2-1.7B-Instruct", _LLAMA_CPP),
        sampling=SamplingAdvice(temperature=0.2, top_p=0.9),
    ),
    _describe_native("Falcon 3", r"falcon-?3", _LLAMA_CPP),
    _describe_plain("TinyLlama", r"tinyllama", _LLAMA_CPP),
)
"""The families; the first whose pattern is found in a model's name counts."""


def find_family(model: str) -> ModelFamily | None:
    """Return the family of a model by its name, such as ``qwen3:8b`` or ``Qwen/Qwen3-8B-GGUF``; None if unknown."""
    name = model.casefold().replace("_", "-").replace(" ", "-")
    return next((family for family in FAMILIES if re.search(family.pattern, name)), None)


def format_of_model(model: str) -> TextFormat:
    """Return the format of a model's family by its name; ``hermes``, which most can follow, for unknown models."""
    family = find_family(model)
    return "hermes" if family is None else family.format


_CallWriter: TypeAlias = Callable[[Sequence[ToolCall]], str]
_ResultWriter: TypeAlias = Callable[[ToolResult], str]
_WRITTEN_RESULTS = ("Result of ", "Error of ")


def _write_plain_result(result: ToolResult) -> str:
    return f"{'Error' if result.is_error else 'Result'} of {result.tool_name or 'the call'}: {result.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormatRow:
    """One format: the forms in which its calls are read, and its texts.

    Args:
        format: The name of the format.
        forms: The forms of its calls.
        takes_fences: True if a fence may enclose calls; calls with marks in a fence are code.
        result_marks: The beginnings of results, which are dropped from a reply: the model made them up.
        rule: How to write a call; an example follows it.
        write_calls: Writes calls as the model would.
        write_result: Writes a result; by default in words, for formats without a mark for results.
        stop: The texts at which the model must stop, since it must not write what follows.
        markers: The words of calls and results in this format, beside the marks that are escaped in all.
    """

    format: TextFormat
    forms: tuple[Form, ...]
    takes_fences: bool = False
    result_marks: tuple[str, ...] = _WRITTEN_RESULTS
    rule: str = ""
    write_calls: _CallWriter
    write_result: _ResultWriter = _write_plain_result
    stop: tuple[str, ...] = ()
    markers: tuple[str, ...] = _WRITTEN_RESULTS

    def escape(self, text: str) -> str:
        """Return a text of somebody else with the marks of calls and results broken."""
        return escape_markers(text, self.markers)

    def instructions(self, tools: Sequence[ToolDefinition]) -> str:
        """Return the instructions about the tools, and about calls of them."""
        listed = "\n".join([_describe_tool(tool) for tool in tools])
        return f"You can call these tools:\n{listed}\n\n{self.reminder(tools)}"

    def reminder(self, tools: Sequence[ToolDefinition]) -> str:
        """Return the instructions about calls."""
        return f"{self.rule} For example:\n{self.write_calls([_make_example_call(tools)])}"


def _describe_tool(tool: ToolDefinition) -> str:
    return escape_json(
        json.dumps(
            {"name": tool.name, "description": describe_with_hints(tool), "parameters": tool.parameters},
            ensure_ascii=False,
            default=dict,
        )
    )


def _make_example_call(tools: Sequence[ToolDefinition]) -> ToolCall:
    """Return a call of the first tool with parameters."""
    tool = next((tool for tool in tools if tool.parameters.get("properties")), tools[0])
    try:
        arguments: Any = make_example(Nodes(tool.parameters), tool.parameters)
    except ExampleTooLargeError:
        arguments = {}
    return ToolCall("", tool.name, json.dumps(arguments if is_object(arguments) else {}, ensure_ascii=False))


def wording_of(format: TextFormat, model: str = "") -> TextFormatRow:  # noqa: A002
    """Return the row of a format; ``auto`` is that of the model's family, or ``hermes``.

    Raises:
        ConfigurationError: There is no such format.
    """
    return find_format(format_of_model(model) if format == "auto" else format)


def _write_arguments(call: ToolCall) -> str:
    """Return the arguments as JSON; those that can't be read are unchanged."""
    repaired = repair_arguments(call.arguments)
    return escape_markers(call.arguments) if repaired is None else escape_json(repaired)


def _write_json_call(name: str, arguments: str, *, keys: tuple[str, str] = ("name", "arguments")) -> str:
    return f'{{"{keys[0]}": {json.dumps(name)}, "{keys[1]}": {arguments}}}'


def _write_python_call(name: str, arguments: str) -> str:
    members = decode_members(arguments)
    inner = arguments if members is None else ", ".join([f"{key}={value!r}" for key, value in members.items()])
    return f"{name}({inner})"


def _write_each(
    write: Callable[[str, str], str], opening: str = "", closing: str = "", separator: str = "\n"
) -> _CallWriter:
    """Return a writer of calls, one after the other between two marks."""
    return lambda calls: (
        opening + separator.join([write(call.name, _write_arguments(call)) for call in calls]) + closing
    )


def _write_around(opening: str, closing: str) -> _ResultWriter:
    return lambda result: f"{opening}{result.text}{closing}"


def _write_mistral_result(result: ToolResult) -> str:
    return f"[TOOL_RESULTS]{json.dumps({'content': result.text}, ensure_ascii=False)}[/TOOL_RESULTS]"


_JSON_RULE = "To call a tool, reply with a JSON object on lines of its own, and nothing after it."
_SECTION_RULE = (
    "To call tools, write each call with its name and a JSON object of arguments between the tokens for calls."
)
_OUTPUTS = tuple(
    [
        f"<\uff5ctool\u2581{part}\uff5c>"
        for part in ("outputs\u2581begin", "output\u2581begin", "output\u2581end", "outputs\u2581end")
    ]
)
_ROWS = (
    TextFormatRow(
        format="hermes",
        forms=(forms.HERMES,),
        result_marks=("<tool_response>",),
        rule="To call a tool, write a JSON object with its name and arguments between <tool_call> and </tool_call>.",
        write_calls=_write_each(
            lambda name, arguments: f"<tool_call>\n{_write_json_call(name, arguments)}\n</tool_call>"
        ),
        write_result=_write_around("<tool_response>\n", "\n</tool_response>"),
        stop=("<tool_response>",),
        markers=(),
    ),
    TextFormatRow(
        format="react",
        forms=(forms.REACT,),
        result_marks=("Observation:", "Observation "),
        rule="To call a tool, write a line with Action and its name, and a line with Action Input and a JSON object; "
        "then stop, and wait for the Observation.",
        write_calls=_write_each(lambda name, arguments: f"Action: {name}\nAction Input: {arguments}"),
        write_result=_write_around("Observation: ", ""),
        stop=("\nObservation:",),
        markers=("Action", "Observation", "Thought", "Final Answer"),
    ),
    TextFormatRow(
        format="llama",
        forms=(forms.PYTHON_TAG, forms.FUNCTION_TAGS, forms.JSON),
        takes_fences=True,
        rule=_JSON_RULE,
        write_calls=_write_each(partial(_write_json_call, keys=("name", "parameters"))),
    ),
    TextFormatRow(
        format="mistral",
        forms=(forms.MISTRAL,),
        result_marks=("[TOOL_RESULTS]",),
        rule="To call tools, write [TOOL_CALLS] and a list of JSON objects with their names and arguments.",
        write_calls=_write_each(_write_json_call, "[TOOL_CALLS] [", "]", ", "),
        write_result=_write_mistral_result,
    ),
    TextFormatRow(
        format="qwen",
        forms=(forms.FUNCTION_TAGS,),
        result_marks=("<tool_response>",),
        rule="To call a tool, write a <function> element with a <parameter> element for each argument between "
        "<tool_call> and </tool_call>, and close each of them.",
        write_calls=_write_each(
            forms.FUNCTION_TAGS.write, "<tool_call>\n", "\n</tool_call>", "\n</tool_call>\n<tool_call>\n"
        ),
        write_result=_write_around("<tool_response>\n", "\n</tool_response>"),
        markers=(),
    ),
    TextFormatRow(
        format="pythonic",
        forms=forms.PYTHON,
        takes_fences=True,
        rule="To call tools, reply with a list of calls in Python syntax, with names for all arguments, alone.",
        write_calls=_write_each(_write_python_call, "[", "]", ", "),
    ),
    TextFormatRow(
        format="json",
        forms=(forms.JSON,),
        takes_fences=True,
        rule=_JSON_RULE,
        write_calls=_write_each(_write_json_call),
    ),
    TextFormatRow(
        format="fenced",
        forms=(forms.JSON,),
        takes_fences=True,
        rule="To call a tool, write a JSON object with its name and arguments in a fence of its own.",
        write_calls=_write_each(lambda name, arguments: f"```json\n{_write_json_call(name, arguments)}\n```"),
    ),
    TextFormatRow(
        format="crew",
        forms=(forms.JSON, forms.REACT),
        takes_fences=True,
        result_marks=(*_WRITTEN_RESULTS, "Observation:", "Observation "),
        rule=_JSON_RULE,
        write_calls=_write_each(partial(_write_json_call, keys=("tool_name", "arguments"))),
        markers=(*_WRITTEN_RESULTS, "Action", "Observation"),
    ),
    TextFormatRow(
        format="glm",
        forms=(forms.GLM,),
        result_marks=("<tool_response>",),
        rule="To call a tool, write its name between <tool_call> and </tool_call>, and after the name an <arg_key> "
        "and an <arg_value> element for each argument.",
        write_calls=_write_each(forms.GLM.write),
        write_result=_write_around("<tool_response>\n", "\n</tool_response>"),
        markers=(),
    ),
    TextFormatRow(
        format="deepseek",
        forms=(forms.DEEPSEEK, forms.ASCII_SECTIONS, forms.DSML, forms.INVOKE),
        result_marks=_OUTPUTS[:1],
        rule=_SECTION_RULE,
        write_calls=_write_each(forms.DEEPSEEK.write, *forms.DEEPSEEK.wrappers[0], ""),
        write_result=_write_around("".join(_OUTPUTS[:2]), "".join(_OUTPUTS[2:])),
        stop=_OUTPUTS[:1],
    ),
    TextFormatRow(
        format="kimi",
        forms=(forms.ASCII_SECTIONS,),
        rule=_SECTION_RULE,
        write_calls=_write_each(forms.ASCII_SECTIONS.write, *forms.ASCII_SECTIONS.wrappers[0], ""),
    ),
    TextFormatRow(
        format="harmony",
        forms=(forms.HARMONY,),
        rule="To call a tool, write a message on the commentary channel to functions.NAME; its body is a JSON object.",
        write_calls=_write_each(forms.HARMONY.write),
    ),
    TextFormatRow(
        format="minimax",
        forms=(forms.INVOKE,),
        rule="To call tools, write <invoke> elements with <parameter> elements between <minimax:tool_call> and "
        "</minimax:tool_call>.",
        write_calls=_write_each(forms.INVOKE.write, "<minimax:tool_call>\n", "\n</minimax:tool_call>"),
    ),
    TextFormatRow(
        format="phi",
        forms=(forms.PHI, forms.FUNCTOOLS),
        rule="To call tools, write a list of JSON objects with names and arguments between the tokens for calls.",
        write_calls=_write_each(_write_json_call, "<|tool_call|>[", "]<|/tool_call|>", ", "),
    ),
    TextFormatRow(
        format="anthropic",
        forms=(forms.INVOKE, forms.ANTML),
        result_marks=("<function_results>",),
        rule="To call tools, write <invoke> elements with <parameter> elements between <function_calls> and "
        "</function_calls>.",
        write_calls=_write_each(forms.INVOKE.write, "<function_calls>\n", "\n</function_calls>"),
        write_result=_write_around("<function_results>\n", "\n</function_results>"),
        stop=("<function_results>",),
        markers=(),
    ),
)
FORMATS: Mapping[str, TextFormatRow] = {row.format: row for row in _ROWS}
AUTO = replace(
    FORMATS["json"],
    format="auto",
    forms=(
        *(forms.GLM, forms.HERMES, forms.OTHER_TAGS, forms.PHI, forms.FUNCTION_TAGS, forms.PYTHON_TAG, forms.MISTRAL),
        *(forms.DEEPSEEK, forms.ASCII_SECTIONS, forms.HARMONY, forms.DSML, forms.INVOKE, forms.ANTML, forms.FUNCTOOLS),
        *(forms.PYTHON[0], forms.REACT, forms.PYTHON[1], forms.JSON),
    ),
    result_marks=(*forms.RESULT_MARKS, *_WRITTEN_RESULTS),
)
"""All forms, for a reply whose first call decides on its format."""


def find_format(name: str) -> TextFormatRow:
    """Return the row of a format, or `AUTO`.

    Raises:
        ConfigurationError: There is no such format.
    """
    row = AUTO if name == "auto" else FORMATS.get(name)
    if row is None:
        raise ConfigurationError(f"there is no format '{name}'; there are: auto, {', '.join(FORMATS)}")
    return row


def escape_markers(text: str, markers: Iterable[str] = ()) -> str:
    """Return a text with the markers of a format and the tokens of all chat templates broken by a backslash.

    Args:
        text: A text of a user or a tool.
        markers: The other marks of the format. A word is one at the beginning of a line, in any case.
    """
    return _compile_markers(tuple(markers)).sub(lambda found: f"{found[0][0]}\\{found[0][1:]}", text)


def escape_json(text: str) -> str:
    """Return equal JSON without tokens of chat templates in its strings."""
    return _compile_markers(()).sub(lambda found: f"\\u{ord(found[0][0]):04x}{found[0][1:]}", text)


@cache
def _compile_markers(markers: tuple[str, ...]) -> re.Pattern[str]:
    own = [rf"(?<![^\n])[ \t*]*{re.escape(marker)}" if marker[0].isalpha() else re.escape(marker) for marker in markers]
    return re.compile("|".join([_TEMPLATE_TOKENS, *own]), re.IGNORECASE)


def read_limits(model: str, attempts: int | None, usages: int | None) -> tuple[int, int]:
    """Return the most replies in a row with unreadable calls, and the number of results without a reminder.

    The defaults depend on the model: 2 and 4 for large ones, else 3 and 3. A provider before its name, and a version
    after it, are ignored.

    Raises:
        ConfigurationError: One of them is less than 1.
    """
    names = [_MODEL_VERSION.sub("", part) for part in re.split(r"[/:]", model.casefold())]
    defaults = (2, 4) if any(map(_LARGE_MODEL.fullmatch, names)) else (3, 3)
    check_setting("max_parsing_attempts", attempts, int, None, least=1)
    check_setting("remember_format_after_usages", usages, int, None, least=1)
    return (defaults[0] if attempts is None else attempts), (defaults[1] if usages is None else usages)
