"""The formats of calls in text by their names, and the forms that each of them consists of."""

from __future__ import annotations

from typing import Literal, TypeAlias

from toolkit.errors import ConfigurationError
from toolkit.parsing.forms import Form
from toolkit.parsing.function_tags import FunctionTagsForm
from toolkit.parsing.glm import GlmForm
from toolkit.parsing.hermes import HermesForm
from toolkit.parsing.invoke import InvokeForm
from toolkit.parsing.json_objects import JsonForm
from toolkit.parsing.llama import LlamaForm
from toolkit.parsing.mistral import MistralForm
from toolkit.parsing.phi import FunctoolsForm
from toolkit.parsing.pythonic import BareCallForm, PythonicForm
from toolkit.parsing.react import ReactForm
from toolkit.parsing.sections import HarmonyForm, SectionForm

__all__ = ["FORMATS_WITHOUT_FENCES", "TextFormat", "find_forms"]

TextFormat: TypeAlias = Literal[
    "auto", "hermes", "react", "llama", "mistral", "qwen", "pythonic", "json", "fenced", "crew",
    "glm", "deepseek", "kimi", "harmony", "minimax", "phi", "anthropic",
]  # fmt: skip
"""How calls are written. For `read_reply` ``auto`` takes all of them."""

_JSON = JsonForm()
_SECTIONS, _INVOKE = SectionForm(), InvokeForm()
_FORMS: dict[str, tuple[Form, ...]] = {
    "hermes": (HermesForm("<tool_call>"),),
    "react": (ReactForm(),),
    "llama": (LlamaForm(), FunctionTagsForm(), _JSON),
    "mistral": (MistralForm(),),
    "qwen": (FunctionTagsForm(),),
    "pythonic": (PythonicForm(), BareCallForm()),
    "json": (_JSON,),
    "fenced": (_JSON,),
    "crew": (_JSON, ReactForm()),
    "glm": (GlmForm(),),
    "deepseek": (_SECTIONS, _INVOKE),
    "kimi": (_SECTIONS,),
    "harmony": (HarmonyForm(),),
    "minimax": (_INVOKE,),
    "phi": (HermesForm("<|tool_call|>"), FunctoolsForm()),
    "anthropic": (_INVOKE,),
    "auto": (
        *(GlmForm(), HermesForm(), FunctionTagsForm(), LlamaForm(), MistralForm()),
        *(_SECTIONS, HarmonyForm(), _INVOKE, FunctoolsForm()),
        *(PythonicForm(), ReactForm(), BareCallForm(), _JSON),
    ),
}
# Where calls have marks of their own, a fence is code.
FORMATS_WITHOUT_FENCES = frozenset(
    ["hermes", "mistral", "qwen", "glm", "deepseek", "kimi", "harmony", "minimax", "phi", "anthropic", "react"]
)


def find_forms(name: str) -> tuple[Form, ...]:
    """Return the forms of a format.

    Raises:
        ConfigurationError: There is no such format.
    """
    forms = _FORMS.get(name)
    if forms is None:
        raise ConfigurationError(f"there is no format '{name}'; there are: {', '.join(_FORMS)}")
    return forms
