"""Replies as small models write them, and what each must be read as.

`calls` are the calls that the model meant, as names and arguments; `is_error` says that something was meant as a call
and can't be read; with neither, the whole reply is text. `text` is what must be left as text, where that matters.
`displaced` are whole calls that stand where no call may stand, where that matters.
"""

from dataclasses import dataclass
from typing import Any

from toolkit.chat import ToolDefinition
from toolkit.parsing import TextFormat


def definition(name: str, **properties: Any) -> ToolDefinition:
    return ToolDefinition(name=name, description="", parameters={"type": "object", "properties": properties})


STRING, INTEGER = {"type": "string"}, {"type": "integer"}

TOOLS = (
    definition("get_weather", city=STRING, days=INTEGER, unit={"enum": ["celsius", "fahrenheit"]}),
    definition("add", a=INTEGER, b=INTEGER),
    definition("search", query=STRING, limit=INTEGER, tags={"type": "array", "items": STRING}),
    definition("write_file", path=STRING, text=STRING),
    definition("send_email", to={"type": "array", "items": STRING}, subject=STRING, options={"type": "object"}),
    definition("now"),
)

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    shape: str
    reply: str
    calls: tuple[Call, ...] = ()
    is_error: bool = False
    displaced: tuple[Call, ...] | None = None
    text: str | None = None
    reads: TextFormat = "auto"


def called(shape: str, reply: str, *calls: Call, text: str | None = None, reads: TextFormat = "auto") -> Case:
    return Case(shape=shape, reply=reply, calls=calls, text=text, reads=reads)


def error(shape: str, reply: str, *, text: str | None = None, reads: TextFormat = "auto") -> Case:
    return Case(shape=shape, reply=reply, is_error=True, text=text, reads=reads)


def asked(shape: str, reply: str, *calls: Call) -> Case:
    """A reply whose calls stand where none may stand: they are text, and the model is asked."""
    return Case(shape=shape, reply=reply, displaced=calls, text=reply)


def no_call(shape: str, reply: str, *, reads: TextFormat = "auto") -> Case:
    return Case(shape=shape, reply=reply, text=reply, reads=reads)


ADD: Call = ("add", {"a": 1, "b": 2})
PARIS: Call = ("get_weather", {"city": "Paris"})
OSLO: Call = ("get_weather", {"city": "Oslo"})
NOW: Call = ("now", {})
ADD_JSON = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
PARIS_JSON = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
OSLO_JSON = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'


def tagged(content: str) -> str:
    return f"<tool_call>{content}</tool_call>"


HERMES = [
    called("hermes", tagged(PARIS_JSON), PARIS),
    called("hermes", tagged(f"\n{PARIS_JSON}\n"), PARIS),
    called("hermes", f"{tagged(PARIS_JSON)}\n{tagged(OSLO_JSON)}", PARIS, OSLO),
    called("hermes", tagged(PARIS_JSON) + tagged(OSLO_JSON), PARIS, OSLO),
    called("hermes", f"Let me look.\n\n{tagged(PARIS_JSON)}", PARIS, text="Let me look."),
    asked("hermes", f"{tagged(PARIS_JSON)}\nOne moment.", PARIS),
    asked("hermes", f"First {tagged(PARIS_JSON)} then {tagged(OSLO_JSON)}.", PARIS, OSLO),
    called("hermes", tagged(f"[{PARIS_JSON}, {OSLO_JSON}]"), PARIS, OSLO),
    called("hermes", tagged(f"{PARIS_JSON}\n{OSLO_JSON}"), PARIS, OSLO),
    called("hermes", tagged(f"{PARIS_JSON},\n{OSLO_JSON}"), PARIS, OSLO),
    called("hermes", f"<tool_call>\n{PARIS_JSON}", PARIS),
    called("hermes", f"<tool_call>{PARIS_JSON}\n<tool_call>{OSLO_JSON}</tool_call>", PARIS, OSLO),
    called("hermes", tagged(f"```json\n{PARIS_JSON}\n```"), PARIS),
    called("hermes", tagged("{'name': 'get_weather', 'arguments': {'city': 'Paris'}}"), PARIS),
    called("hermes", tagged('{"name": "get_weather", "arguments": {"city": "Paris",},}'), PARIS),
    called("hermes", tagged('{name: "get_weather", arguments: {city: "Paris"}}'), PARIS),
    called("hermes", tagged('{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}'), PARIS),
    called("hermes", tagged('{"arguments": {"city": "Paris"}, "name": "get_weather"}'), PARIS),
    called("hermes", tagged('{"name": "get_weather", "parameters": {"city": "Paris"}}'), PARIS),
    called("hermes", tagged('{"id": "x", "name": "get_weather", "arguments": {"city": "Paris"}}'), PARIS),
    called("hermes", tagged('{"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}'), ADD),
    called("hermes", tagged('{"name": "now"}'), NOW),
    called("hermes", tagged('{"name": "now", "arguments": {}}'), NOW),
    called("hermes", tagged('{"name": "now", "arguments": null}'), NOW),
    called("hermes", tagged('{"name": "now", "arguments": ""}'), NOW),
    called("hermes", tagged('{"name": "no_such_tool", "arguments": {}}'), ("no_such_tool", {})),
    called("hermes", tagged('{"name": "getWeather", "arguments": {}}'), ("getWeather", {})),
    called("hermes", tagged('{"name": "add", "arguments": {"a": True, "b": None}}'), ("add", {"a": True, "b": None})),
    called("hermes", tagged('{"name": "add", /* sum */ "arguments": {"a": 1, "b": 2} // done\n}'), ADD),
    called(
        "hermes",
        tagged('{"name": "write_file", "arguments": {"path": "a", "text": "end with </tool_call> here"}}'),
        ("write_file", {"path": "a", "text": "end with </tool_call> here"}),
    ),
    called(
        "hermes",
        tagged('{"name": "write_file", "arguments": {"path": "a", "text": "if (x) { y[0] } \\" }"}}'),
        ("write_file", {"path": "a", "text": 'if (x) { y[0] } " }'}),
    ),
    called(
        "hermes",
        tagged('{"name": "write_file", "arguments": {"path": "a", "text": "line\nbreak"}}'),
        ("write_file", {"path": "a", "text": "line\nbreak"}),
    ),
    called(
        "hermes",
        tagged('{"name": "search", "arguments": {"query": "\u2603 \\u2603 天気"}}'),
        ("search", {"query": "\u2603 \u2603 天気"}),
    ),
    called("hermes", f"{tagged(PARIS_JSON)}</tool_call>\n{tagged(OSLO_JSON)}", PARIS, OSLO, text=""),
    called(
        "hermes", f"{tagged(PARIS_JSON)}\n<tool_response>\nSunny.\n</tool_response>\n{tagged(ADD_JSON)}", PARIS, text=""
    ),
    error("hermes", '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}'),
    error("hermes", '<tool_call>{"name": "get_weather", "arguments": {"city": "Par'),
    error("hermes", "<tool_call>"),
    error("hermes", "<tool_call>\n{"),
    error("hermes", tagged("")),
    error("hermes", tagged('add\n{"a": 1, "b": 2}')),
    error("hermes", tagged("<arg_key>a</arg_key>")),
    called("hermes", f"<tools>\n{PARIS_JSON}\n</tools>", PARIS, text=""),
    called("hermes", f"<|tool_call|>[{PARIS_JSON}, {OSLO_JSON}]<|/tool_call|>", PARIS, OSLO, text=""),
    called("hermes", f"<|tool_call|>[{PARIS_JSON}]", PARIS, text=""),
    called("hermes", f"<tool_calls>[\n {PARIS_JSON}\n]</tool_calls>", PARIS, text=""),
    called("hermes", f"<function_call>{PARIS_JSON}</function_call>", PARIS, text=""),
    called("hermes", '<functioncall> {"name": "add", "arguments": \'{"a": 1, "b": 2}\'}', ADD, text=""),
    called("hermes", f"<|action_start|><|plugin|>\n{PARIS_JSON}<|action_end|>", PARIS, text=""),
    called(
        "hermes",
        '<|START_ACTION|>[\n{"tool_call_id": "0", "tool_name": "add", "parameters": {"a": 1, "b": 2}}\n]<|END_ACTION|>',
        ADD,
        text="",
    ),
    error("hermes", f"<|tool_call|>[{PARIS_JSON}"),
    error("hermes", '<tools>{"name": "add", "description": "Adds.", "parameters": {"type": "object"}}</tools>'),
    no_call("hermes", "<tools>\n<tool>a hammer</tool>\n</tools>"),
    asked("hermes", f"I'll search for a template:\n{tagged(PARIS_JSON)}", PARIS),
    called(
        "hermes",
        f"{tagged(PARIS_JSON)}<|im_end|>\n<|im_start|>user\nAnd now?\n<|im_start|>assistant\n{tagged(OSLO_JSON)}",
        PARIS,
        text="",
    ),
    no_call("hermes", f"Ein Beispiel:\n{tagged(PARIS_JSON)}"),
    no_call("hermes", f"### Example\n\n{tagged(PARIS_JSON)}"),
    no_call("hermes", f"In the format of Hermes that is:\n{tagged(PARIS_JSON)}"),
    error("hermes", tagged('{"name": "get_weather", "arguments": {"city": "Paris"}')),
    error("hermes", tagged('{"name": "get_weather", "arguments": {"city": "Paris"}}}')),
    error("hermes", tagged('{"name": "get_weather" "arguments": {"city": "Paris"}}')),
    error("hermes", tagged('{"name": "get_weather", "arguments": {"city": "Paris}}')),
    error("hermes", tagged('{"name": "get_weather", "arguments": {"city": "the "best" one"}}')),
    error("hermes", tagged('{"name": "get_weather", "arguments": {"city": "Paris", "city": "Rome"}}')),
    error("hermes", tagged('{"name": "get_weather", "name": "add", "arguments": {}}')),
    error("hermes", tagged('{"name": "add", "arguments": {"a": NaN, "b": Infinity}}')),
    error("hermes", tagged('{"name": "add", "arguments": {"a": 01, "b": 2}}')),
    error("hermes", tagged('{"name": "add", "arguments": {"a": 1 + 1, "b": 2}}')),
    error("hermes", tagged('{"name": "add", "arguments": [1, 2]}')),
    error("hermes", tagged('{"name": "add", "arguments": 3}')),
    error("hermes", tagged('{"name": "add", "arguments": "1 and 2"}')),
    error("hermes", tagged('{"name": "add", "a": 1, "b": 2}')),
    error("hermes", tagged('{"name": 5, "arguments": {}}')),
    error("hermes", tagged('{"name": "", "arguments": {}}')),
    error("hermes", tagged('{"arguments": {"a": 1, "b": 2}}')),
    error("hermes", tagged('{"name": "add", "arguments": {}, "parameters": {"a": 1}}')),
    error("hermes", tagged("[]")),
    error("hermes", tagged("{}")),
    error("hermes", tagged('[{"name": "add", "arguments": {}}, 5]')),
    error("hermes", tagged("get_weather(city='Paris')")),
    error("hermes", tagged(f"I will call {PARIS_JSON}")),
    error("hermes", tagged(f"{PARIS_JSON} as you wished")),
    error("hermes", tagged('{"name": "search", "arguments": {"query": "\ud800"}}')),
    error("hermes", tagged('{"name": "search", "arguments": {"query": "a\x00b"}}')),
    error("hermes", tagged('{"name": "search", "arguments": ' + '{"a": ' * 200 + "1" + "}" * 200 + "}")),
    no_call("hermes", "Models of this kind write `<tool_call>` round their calls."),
    no_call("hermes", f"They write `{tagged(PARIS_JSON)}` for that."),
    asked("hermes", f'Let me search for "weather"{tagged(PARIS_JSON)}', PARIS),
    no_call("hermes", f'They write "{tagged(PARIS_JSON)}" for that.'),
    no_call("hermes", f'The reply was ("{tagged(PARIS_JSON)}").'),
    no_call("hermes", "The <tool_call> tag begins a call."),
    no_call("hermes", f"For example:\n{tagged(PARIS_JSON)}"),
    no_call("hermes", f"For example:\n{tagged(PARIS_JSON)}\n{tagged(OSLO_JSON)}\nThat is all."),
    no_call("hermes", "The closing tag </tool_call> alone is nothing."),
    no_call("hermes", "a < b and <b>bold</b> and <tool> and <tool_calls>"),
    no_call("hermes", f"<think>\nI could write {tagged(PARIS_JSON)}\n</think>\nIt is sunny."),
    no_call("hermes", f"<think>{tagged(PARIS_JSON)}"),
    called("hermes", f"<think>Weather?</think>\n{tagged(PARIS_JSON)}", PARIS, text="<think>Weather?</think>"),
]

GLM = [
    called("glm", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>", PARIS),
    called(
        "glm", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>", PARIS, text=""
    ),
    called(
        "glm",
        "Sure.<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n"
        "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
        ADD,
        NOW,
        text="Sure.",
    ),
    called(
        "glm",
        "<tool_call>search<arg_key>query</arg_key><arg_value>5</arg_value>"
        '<arg_key>tags</arg_key><arg_value>["a", "b"]</arg_value></tool_call>',
        ("search", {"query": "5", "tags": ["a", "b"]}),
    ),
    called("glm", "<tool_call>now</tool_call>", NOW),
    error("glm", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Par"),
    error("glm", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>"),
    error("glm", "<tool_call>get_weather<arg_key>city</arg_key></tool_call>"),
    error(
        "glm", "<tool_call>add<arg_key>a</arg_key><arg_value>1<arg_key>b</arg_key><arg_value>2</arg_value></tool_call>"
    ),
    error("glm", "<tool_call>add<arg_key>a/arg_key><arg_value>1</arg_value></tool_call>"),
    error(
        "glm",
        "<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value>"
        "<arg_key>a</arg_key><arg_value>2</arg_value></tool_call>",
    ),
    no_call("glm", "The <tool_call>now</tool_call> of GLM has no arguments."),
    error("glm", "<tool_call>hammer</tool_call>"),
    no_call("glm", "It writes `<tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>`."),
]

REACT = [
    called("react", 'Action: ```json\n[\n  {"tool_name": "add", "parameters": {"a": 1, "b": 2}}\n]\n```', ADD),
    called("react", 'Action:\n```json\n{"action": "add", "action_input": {"a": 1, "b": 2}}\n```', ADD),
    called("react", 'Action: {"action": "add", "action_input": {"a": 1, "b": 2}}', ADD),
    called("react", 'Action: get_weather\nAction Input: {"city": "Paris"}', PARIS),
    called("react", 'Thought: I need it.\nAction: get_weather\nAction Input: {"city": "Paris"}', PARIS),
    called("react", 'Thought: a\n\nAction: get_weather\n\nAction Input: {"city": "Paris"}\n', PARIS),
    called("react", 'Action: get_weather\nAction Input:\n{"city": "Paris"}', PARIS),
    called("react", 'Action: get_weather\nAction Input: {\n  "city": "Paris"\n}\n', PARIS),
    called("react", 'Action: get_weather\nAction Input: ```json\n{"city": "Paris"}\n```', PARIS),
    called("react", 'Action: get_weather\nAction Input:\n```\n{"city": "Paris"}\n```\n', PARIS),
    called("react", 'Action: `get_weather`\nAction Input: `{"city": "Paris"}`', PARIS),
    called("react", 'Action: [get_weather]\nAction Input: {"city": "Paris"}', PARIS),
    called("react", 'Action: get_weather()\nAction Input: {"city": "Paris"}', PARIS),
    called("react", '**Action:** get_weather\n**Action Input:** {"city": "Paris"}', PARIS),
    called("react", 'Action 1: get_weather\nAction Input 1: {"city": "Paris"}', PARIS),
    called("react", 'action: get_weather\naction input: {"city": "Paris"}', PARIS),
    called("react", 'ACTION: get_weather\nACTION INPUT: {"city": "Paris"}', PARIS),
    called("react", "Action: get_weather\nAction Input: {'city': 'Paris'}", PARIS),
    called("react", 'Action: get_weather\r\nAction Input: {"city": "Paris"}\r\n', PARIS),
    called("react", 'Action: get_weather\nAction Input: "{\\"city\\": \\"Paris\\"}"', PARIS),
    called("react", "Action: now\nAction Input: {}", NOW),
    called("react", "Action: now\nAction Input:\n", NOW),
    called("react", "Action: now\nAction Input:", NOW),
    called("react", "Action: now\nAction Input:\nObservation: 12:00\nThought: It is noon.", NOW, text=""),
    error("react", "Action: get_weather\nAction Input:\n"),
    error("react", "Action: get_weather\nAction Input:\nParis"),
    error("react", "Action: get_weather\nAction Input:\nObservation: Sunny."),
    called("react", "Action: now\nAction Input: None\n", NOW),
    called("react", 'Action: no_such_tool\nAction Input: {"x": 1}', ("no_such_tool", {"x": 1})),
    called(
        "react",
        'Action: get_weather\nAction Input: {"city": "Paris"}\nObservation: Hot.\nThought: Done.\nFinal Answer: Hot.',
        PARIS,
        text="",
    ),
    called(
        "react",
        'Action: get_weather\nAction Input: {"city": "Paris"} Observation: Sunny.\nAction: add\nAction Input: {"a": 1}',
        PARIS,
        text="",
    ),
    called(
        "react",
        'Action: get_weather\nAction Input: {"city": "Paris"}\nAction: get_weather\nAction Input: {"city": "Oslo"}',
        PARIS,
        OSLO,
    ),
    error("react", "Action: get_weather\nAction Input: Paris"),
    error("react", "Action: get_weather\nAction Input: city=Paris"),
    error("react", 'Action: get_weather\nAction Input: {"city": "Par'),
    error("react", "Action: get_weather\nAction Input:"),
    error("react", 'Action: get_weather\nAction Input: {}\n  "city": "Paris"\n}\n'),
    error("react", "Action: get_weather\n"),
    error("react", "Action: get_weather\nInput: Paris"),
    error("react", 'Action: get_weather\nAction Input: ["Paris"]'),
    error("react", 'Action: get_weather\nAction Input: {"city": "Paris"} because it is sunny there'),
    error("react", 'Action: get_weather\nAction Input: {"city": "Paris"}}'),
    no_call("react", "Thought: I know it.\nFinal Answer: It is sunny."),
    no_call("react", "Action: we should leave now.\nThat is all."),
    no_call("react", "Thought: no tool is needed.\nAction: None\nFinal Answer: 4"),
    no_call("react", 'A call to Action: get_weather\nAction Input: {"city": "Paris"}'),
    no_call("react", 'Here is an example:\nAction: get_weather\nAction Input: {"city": "Paris"}'),
    error("react", "Action: add(a=1, b=2)"),
    error("react", 'Action: add Action Input: {"a": 1, "b": 2}'),
    no_call("react", "Actions speak louder than words."),
]

LLAMA = [
    called("llama", '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}', PARIS),
    called("llama", '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}<|eom_id|>', PARIS, text=""),
    called("llama", f"<|python_tag|>{PARIS_JSON}<|eot_id|>", PARIS, text=""),
    called("llama", f"<|python_tag|>{PARIS_JSON}; {OSLO_JSON}", PARIS, OSLO),
    called("llama", f"<|python_tag|>{PARIS_JSON}\n{OSLO_JSON}", PARIS, OSLO),
    called("llama", f"<|python_tag|>[{PARIS_JSON}, {OSLO_JSON}]", PARIS, OSLO),
    called("llama", '<|python_tag|>get_weather.call(city="Paris")', PARIS),
    called("llama", '<|python_tag|>get_weather(city="Paris")', PARIS),
    called("llama", '{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}', PARIS),
    called("llama", '{"name": "get_weather", "parameters": {"city": "Paris"}}', PARIS, reads="llama"),
    called("llama", '<function=get_weather>{"city": "Paris"}</function>', PARIS),
    called("llama", '<function=get_weather>{"city": "Paris"}</function>', PARIS, reads="llama"),
    called("llama", "<function=now>{}</function>", NOW),
    error("llama", "<|python_tag|>print('hello')"),
    error("llama", "<|python_tag|>import os"),
    error("llama", "<|python_tag|>"),
    error("llama", '<|python_tag|>{"name": "get_weather"} "parameters": {"city": "Paris"}}'),
    error("llama", '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Par'),
    error("llama", '<|python_tag|>get_weather.call(city="Par'),
    error("llama", '<function=get_weather>{"city": "Paris"'),
    error("llama", '<function=get_weather>{"city": "Paris"}'),
    error("llama", '<function=get_weather>{"city": "Paris"} please</function>'),
    no_call("llama", "The token `<|python_tag|>` begins a call."),
]

MISTRAL = [
    called("mistral", f"[TOOL_CALLS] [{PARIS_JSON}]", PARIS),
    called("mistral", f"[TOOL_CALLS][{PARIS_JSON}, {OSLO_JSON}]", PARIS, OSLO),
    asked("mistral", f"Let me see. [TOOL_CALLS] [{PARIS_JSON}]", PARIS),
    called("mistral", f"[TOOL_CALLS] [{PARIS_JSON}] [/TOOL_CALLS]", PARIS, text=""),
    called("mistral", f"[TOOL_CALLS] {PARIS_JSON}", PARIS),
    called("mistral", f"[TOOL_CALLS] {PARIS_JSON}, {OSLO_JSON}", PARIS, OSLO),
    called(
        "mistral", '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "VvvODy9mT"}]', PARIS
    ),
    called("mistral", "[TOOL_CALLS] [{'name': 'get_weather', 'arguments': {'city': 'Paris'}}]", PARIS),
    called("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}', PARIS),
    called("mistral", '[TOOL_CALLS]get_weather{"city": "Paris"}', PARIS),
    called("mistral", '[TOOL_CALLS]get_weather[CALL_ID]VvvODy9mT[ARGS]{"city": "Paris"}', PARIS),
    called(
        "mistral",
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}',
        PARIS,
        OSLO,
    ),
    error("mistral", "[TOOL_CALLS]"),
    error("mistral", '[TOOL_CALLS] {"name": "get_weather"}, "arguments": {"city": "Paris"}}'),
    error("mistral", "[TOOL_CALLS] []"),
    error("mistral", '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}'),
    error("mistral", '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": ]}}, ' + OSLO_JSON + "]"),
    error("mistral", "[TOOL_CALLS]get_weather[ARGS]"),
    error("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "Par'),
    error("mistral", '[TOOL_CALLS]get_weather[ARGS]["Paris"]'),
    error("mistral", "[TOOL_CALLS]get_weather[ARGS]Paris"),
    no_call("mistral", "The token `[TOOL_CALLS]` begins calls, [TOOL is nothing."),
]


def function(name: str, **parameters: str) -> str:
    inner = "".join([f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters.items()])
    return f"<function={name}>\n{inner}</function>"


QWEN = [
    called("qwen", f"<tool_call>\n{function('get_weather', city='Paris')}\n</tool_call>", PARIS),
    called("qwen", f"Sure.\n<tool_call>\n{function('get_weather', city='Paris')}\n</tool_call>", PARIS, text="Sure."),
    called("qwen", function("get_weather", city="Paris"), PARIS),
    called("qwen", f"{function('get_weather', city='Paris')}\n</tool_call>", PARIS, text=""),
    called("qwen", f"<tool_call>\n{function('get_weather', city='Paris')}", PARIS),
    called("qwen", f"<tool_call>{function('now')}</tool_call>", NOW),
    called("qwen", "<function=get_weather><parameter=city>Paris</parameter></function>", PARIS),
    called("qwen", function("add", a="1", b="2"), ADD),
    called("qwen", function("get_weather", city="5"), ("get_weather", {"city": "5"})),
    called("qwen", function("get_weather", city="true"), ("get_weather", {"city": "true"})),
    called("qwen", function("add", a="one", b="2"), ("add", {"a": "one", "b": 2})),
    called("qwen", function("search", tags='["a", "b"]'), ("search", {"tags": ["a", "b"]})),
    called("qwen", function("search", tags="['a', 'b']"), ("search", {"tags": ["a", "b"]})),
    called("qwen", function("send_email", options='{"x": {"y": 1}}'), ("send_email", {"options": {"x": {"y": 1}}})),
    called("qwen", function("send_email", options='5, "x": 6'), ("send_email", {"options": '5, "x": 6'})),
    called("qwen", function("write_file", text="a\n\n  b <c> & 'd'"), ("write_file", {"text": "a\n\n  b <c> & 'd'"})),
    called("qwen", function("write_file", text="\nx\n"), ("write_file", {"text": "\nx\n"})),
    called("qwen", function("write_file", text='{"name": "add"}'), ("write_file", {"text": '{"name": "add"}'})),
    called("qwen", f"<tool_call>\n{function('now')}\n{function('add', a='1', b='2')}\n</tool_call>", NOW, ADD),
    called("qwen", f"<tool_call>{function('now')}</tool_call>\n<tool_call>{function('now')}</tool_call>", NOW, NOW),
    error("qwen", "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis"),
    error("qwen", "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>"),
    error("qwen", "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</tool_call>"),
    error("qwen", "<function=get_weather>\n<parameter=city>\nParis\n</function>"),
    error("qwen", "<function=get_weather>\n<parameter=city>a</parameter>\n<parameter=city>b</parameter></function>"),
    error("qwen", "<function=write_file>\n<parameter=text>a</parameter> b</parameter>\n</function>"),
    error("qwen", "<function=get_weather>\nParis\n</function>"),
    error("qwen", "<function=search>\n<parameter=query>\na\n<parameter=limit>\n5\n</parameter>\n</function>"),
    error(
        "qwen",
        "<function=search>\n<parameter=query>\na\n</function>\n<function=add>\n<parameter=a>1</parameter></function>",
    ),
    error("qwen", "<function="),
    error("qwen", "<function=get_weather\n<parameter=city>Paris</parameter></function>"),
    no_call("qwen", "The `<function=name>` element holds `<parameter=key>` elements."),
    no_call("qwen", "y = <function> of x"),
    no_call("qwen", "<Function=get_weather>\n<parameter=city>Paris</parameter>\n</Function>"),
]

PYTHONIC = [
    called("pythonic", '[get_weather(city="Paris")]', PARIS),
    called("pythonic", "[get_weather(city='Paris')]", PARIS),
    called("pythonic", '[get_weather(city="Paris"), get_weather(city="Oslo")]', PARIS, OSLO),
    called("pythonic", '[\n  get_weather(city="Paris"),\n  add(a=1, b=2),\n]', PARIS, ADD),
    called("pythonic", "[now()]", NOW),
    called("pythonic", "[add(a=1, b=2,)]", ADD),
    called("pythonic", "[add(a = 1, b = 2)]", ADD),
    called("pythonic", "[add(a=1,  # the first\n  b=2)]", ADD),
    called("pythonic", "[add(a=-1, b=2.5e3)]", ("add", {"a": -1, "b": 2500.0})),
    called("pythonic", "[add(a=True, b=None)]", ("add", {"a": True, "b": None})),
    called("pythonic", "[add(a=true, b=null)]", ("add", {"a": True, "b": None})),
    called(
        "pythonic", '[search(query="a, b)]", tags=["x", "y"])]', ("search", {"query": "a, b)]", "tags": ["x", "y"]})
    ),
    called("pythonic", "[send_email(options={'a': [1, {'b': 2}]})]", ("send_email", {"options": {"a": [1, {"b": 2}]}})),
    called("pythonic", "[getWeather(city='Paris')]", ("getWeather", {"city": "Paris"})),
    asked("pythonic", 'Calling: [get_weather(city="Paris")]', PARIS),
    called("pythonic", '```\n[get_weather(city="Paris")]\n```', PARIS, text="", reads="pythonic"),
    error("pythonic", '[get_weather("Paris")]'),
    error("pythonic", '[get_weather(city="Par'),
    error("pythonic", '[get_weather(city="Paris"'),
    error("pythonic", '[get_weather(city="Paris")'),
    error("pythonic", "[add(a=1 + 1, b=2)]"),
    error("pythonic", "[add(a=7 // 2, b=2)]"),
    error("pythonic", "[add(a=7 / 2, b=2)]"),
    error("pythonic", "[add(a=x, b=2)]"),
    error("pythonic", "[add(a=add(a=1, b=2), b=2)]"),
    error("pythonic", "[add(a=1, a=2)]"),
    error("pythonic", "[add(a==1)]"),
    error("pythonic", "[add(**values)]"),
    error("pythonic", "[search(query=f'{x}')]"),
    error("pythonic", "[search(query='a' 'b')]"),
    error("pythonic", "[add(a=1, b=2), 5]"),
    error("pythonic", "[add(a=1, b=2) add(a=1, b=2)]"),
    error("pythonic", "[add(a=(1, 2), b=2)]"),
    called("bare call", 'get_weather(city="Paris")', PARIS, text=""),
    called("bare call", 'getWeather(city="Paris")', ("getWeather", {"city": "Paris"})),
    called("bare call", "now()", NOW),
    called("bare call", 'get_weather(city="Paris")\nadd(a=1, b=2)\n', PARIS, ADD, text=""),
    called("bare call", 'get_weather(\n    city="Paris",\n)', PARIS),
    called("bare call", 'I will look.\nget_weather(city="Paris")', PARIS, text="I will look."),
    asked("bare call", 'Let me look:\n\nget_weather(city="Paris")<|im_end|>', PARIS),
    called("bare call", 'get_weather(city="Paris")\nObservation: Sunny.', PARIS, text=""),
    called("bare call", '```tool_code\nget_weather(city="Paris")\n```', PARIS, text=""),
    called("bare call", 'get_weather(city="Paris")', PARIS, reads="pythonic"),
    error("bare call", 'get_weather("Paris")'),
    error("bare call", "add(1, 2)"),
    error("bare call", 'get_weather(city="Par'),
    error("bare call", "add(a=1 + 1, b=2)"),
    no_call("bare call", "add(a=1, b=2) returns 3."),
    no_call("bare call", "add(a=1, b=2)\nreturns 3."),
    no_call("bare call", "add(1, 2) = 3"),
    no_call("bare call", "The sum is add(a=1, b=2)"),
    no_call("bare call", "I called\nadd(a=1, b=2)"),
    no_call("bare call", "The sum is\nadd(a=1, b=2)"),
    no_call("bare call", "Use\n\nadd(a=1, b=2)\n\nto add."),
    no_call("bare call", "- add(a=1, b=2)\n- now()"),
    no_call("bare call", "`add(a=1, b=2)`"),
    no_call("bare call", "```\nadd(a=1, b=2)\n```"),
    no_call("bare call", "```python\nadd(a=1, b=2)\n```"),
    no_call("bare call", "add(a=1, b=2)\n```\n3\n```"),
    no_call("bare call", "print(a=1)"),
    no_call("bare call", "x = 1\n    add(a=1, b=2)"),
    no_call("pythonic", '[no_such_tool(city="Paris")]'),
    no_call("pythonic", "See [add(a=1)](https://example.com)."),
    no_call("pythonic", "- [get_weather(city='Paris')](#weather): the weather"),
    no_call("pythonic", "The list [add(a=1, b=2)] is what I used."),
    no_call("pythonic", "You could write `[add(a=1, b=2)]`."),
    no_call("pythonic", "[x for x in range(3)]"),
    no_call("pythonic", "[1, 2, 3] and [link](url)"),
    no_call("pythonic", "```python\n[add(a=1, b=2)]\n```"),
]

JSON = [
    called("json", PARIS_JSON, PARIS),
    called("json", f"\n\n  {PARIS_JSON}\n", PARIS, text=""),
    called("json", '{\n  "name": "get_weather",\n  "arguments": {\n    "city": "Paris"\n  }\n}', PARIS),
    called("json", f"{PARIS_JSON}\n{OSLO_JSON}", PARIS, OSLO),
    called("json", f"{PARIS_JSON}{OSLO_JSON}", PARIS, OSLO),
    called("json", f"{PARIS_JSON}, {OSLO_JSON}", PARIS, OSLO, text=""),
    called("json", f"{PARIS_JSON};\n{OSLO_JSON}", PARIS, OSLO, text=""),
    called("json", f"[{PARIS_JSON}, {OSLO_JSON}]", PARIS, OSLO),
    called("json", f'{{"tool_calls": [{PARIS_JSON}, {OSLO_JSON}]}}', PARIS, OSLO),
    called(
        "json",
        '{"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get_weather", '
        '"arguments": "{\\"city\\": \\"Paris\\"}"}}]}',
        PARIS,
    ),
    called("json", '{"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}', ADD),
    called("json", '{"function": "add", "arguments": {"a": 1, "b": 2}}', ADD),
    called("json", '{"tool": "add", "args": {"a": 1, "b": 2}}', ADD),
    called("json", '{"tool": "add", "parameters": {"a": 1, "b": 2}}', ADD),
    called("json", '{"action": "add", "action_input": {"a": 1, "b": 2}}', ADD),
    called("json", '{"arguments": {"a": 1, "b": 2}, "name": "add"}', ADD),
    called("json", "{'name': 'add', 'arguments': {'a': 1, 'b': 2,},}", ADD),
    called("json", '{name: "add", arguments: {a: 1, b: 2}}', ADD),
    called("json", '{"name": "getWeather", "arguments": {"city": "Paris"}}', ("getWeather", {"city": "Paris"})),
    asked("json", f"Sure! {PARIS_JSON}", PARIS),
    asked("json", f"I'll look that up for you:\n\n{PARIS_JSON}\n\nOne moment.", PARIS),
    asked("json", f"Let me check the weather: {PARIS_JSON} I will tell you.", PARIS),
    asked("json", f"I did not find it. Let me try again:\n{PARIS_JSON}", PARIS),
    asked("json", f"**Tool call:** {PARIS_JSON}", PARIS),
    called("json", f'{{"tool_call": {PARIS_JSON}}}', PARIS),
    called("json", f'{{"function_call": {PARIS_JSON}}}', PARIS),
    called("json", f"{PARIS_JSON}<|im_end|>", PARIS, text=""),
    called("json", f"{PARIS_JSON}\n</s>", PARIS, text=""),
    called("json", '{"thought": "Sum.", "tool_name": "add", "arguments": {"a": 1, "b": 2}}', ADD),
    error("json", '{"name": "get_weather", "arguments": {"city": "Paris"}'),
    error("json", '{"name": "get_weather", "arguments": {"city": "Par'),
    error("json", '{"name": "get_weather", "arguments": {"city": "Paris"]}'),
    error("json", '{"name": "get_weather", "arguments": {"city": "Paris" "days": 2}}'),
    error("json", '{"name": "get_weather", "arguments": {"city": "Paris", "city": "Oslo"}}'),
    error("json", '{"name": "get_weather", "arguments": ["Paris"]}'),
    error("json", '{"name": "get_weather", "arguments": "Paris"}'),
    error("json", '{"name": "add", "arguments": {"a": NaN}}'),
    error("json", '{"name": "no_such_tool", "arguments": {"a": 1}}'),
    no_call("json", '{"name": "Ada", "born": 1815}'),
    no_call("json", '{"name": "add"}'),
    no_call("json", '{"name": "add", "description": "Add two numbers.", "parameters": {"a": 1}}', reads="hermes"),
    no_call("json", '{"city": "Paris", "degrees": 21}'),
    no_call("json", '{"a": 1, "b": 2}'),
    no_call("json", f'{{"result": {PARIS_JSON}}}'),
    no_call("json", f'{{\n  "items": [\n    {PARIS_JSON}\n  ]\n}}'),
    no_call("json", f"I used {PARIS_JSON} to find out."),
    no_call("json", f"The weather came from the call {PARIS_JSON}, and it is sunny."),
    no_call("json", f"You can call it like this: {PARIS_JSON}"),
    no_call("json", f"For example:\n\n{PARIS_JSON}"),
    no_call("json", f"I called the tool with:\n{PARIS_JSON}"),
    no_call("json", f"The input `{PARIS_JSON}` is valid."),
    no_call("json", f"She wrote '{PARIS_JSON}'."),
    no_call("json", 'It is sunny. The data was {"city": "Paris", "name": "add"}.'),
    no_call("json", f"To add numbers, I'd send:\n{ADD_JSON}"),
    no_call("json", f"Result: {ADD_JSON}"),
    called("json", f"<think>\nThe weather.\n</think>\n\n{PARIS_JSON}", PARIS),
    asked("json", f"Here is the function call:\n\n{PARIS_JSON}", PARIS),
    asked("json", f"Ich sehe nach:\n{PARIS_JSON}", PARIS),
    asked("json", f"我来查一下\uff1a\n{PARIS_JSON}", PARIS),
    error("json", '{"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}'),
    no_call("json", f"Here is the JSON object:\n{PARIS_JSON}"),
    no_call("json", f"This is the JSON:\n```json\n{PARIS_JSON}\n```"),
    no_call("json", f"The file config.json:\n\n{PARIS_JSON}"),
    no_call("json", f"A tool call looks as follows:\n{PARIS_JSON}"),
    no_call("json", f"To call the weather tool, send:\n{PARIS_JSON}"),
    no_call("json", f"Question: What does it emit?\nAnswer: {PARIS_JSON}"),
    no_call("json", f"### Example\n\n{PARIS_JSON}"),
    no_call("json", f"**Example call**\n{PARIS_JSON}"),
    no_call("json", f"I suggest this call:\n{PARIS_JSON}"),
    no_call("json", f"| Tool | Call |\n|---|---|\n| weather | {PARIS_JSON} |"),
    no_call("json", f"> {PARIS_JSON}"),
    no_call("json", f"Zum Beispiel:\n{PARIS_JSON}"),
    no_call("json", f"Ein Aufruf sieht so aus:\n\n{PARIS_JSON}"),
    no_call("json", f"Ich habe das Werkzeug so aufgerufen:\n{PARIS_JSON}"),
    no_call("json", f"Par exemple :\n{PARIS_JSON}"),
    no_call("json", f"J'ai utilisé :\n{PARIS_JSON}"),
    no_call("json", f"Ejemplo:\n{PARIS_JSON}"),
    no_call("json", f"例如\uff1a\n{PARIS_JSON}"),
    no_call("json", f"例えば:\n{PARIS_JSON}"),
    no_call("json", f"Например:\n{PARIS_JSON}"),
    no_call("json", f"Here is the JSON that you asked for:\n```json\n{ADD_JSON}\n```"),
    no_call("json", f"{ADD_JSON} is the call."),
    no_call("json", f"- {ADD_JSON}\n- {PARIS_JSON}"),
    no_call("json", f"1. {ADD_JSON}\n2. {PARIS_JSON}"),
    no_call("json", f"Do not run this: {ADD_JSON}"),
    no_call("json", "In set notation {a, b} and {name: x} and { and }."),
    no_call("json", "x = {'a': {'name': 'add', 'arguments': {}}}"),
    no_call("json", ""),
    no_call("json", "It is sunny in Paris."),
    no_call("json", "null"),
    no_call("json", "[]"),
    no_call("json", '[{"name": "Ada"}, {"name": "Grace"}]'),
]

FENCED = [
    called("fenced", f"```json\n{PARIS_JSON}\n```", PARIS, text=""),
    called("fenced", f"```\n{PARIS_JSON}\n```", PARIS, text=""),
    called("fenced", f"~~~json\n{PARIS_JSON}\n~~~", PARIS, text=""),
    called("fenced", f"````json\n{PARIS_JSON}\n````", PARIS, text=""),
    called("fenced", f"```JSON\n{PARIS_JSON}\n```", PARIS),
    called("fenced", f"```tool_call\n{PARIS_JSON}\n```", PARIS),
    asked("fenced", f"Let me look:\n```json\n{PARIS_JSON}\n```\nOne moment.", PARIS),
    called("fenced", f"```json\n{PARIS_JSON}\n{OSLO_JSON}\n```", PARIS, OSLO),
    called("fenced", f"```json\n[{PARIS_JSON}, {OSLO_JSON}]\n```", PARIS, OSLO),
    called("fenced", f"```json\n{PARIS_JSON}\n```\n```json\n{OSLO_JSON}\n```", PARIS, OSLO, text=""),
    called("fenced", f"```json\n{PARIS_JSON}", PARIS),
    called("fenced", f"```{PARIS_JSON}```", PARIS),
    called("fenced", f"```xml\n{tagged(PARIS_JSON)}\n```", PARIS, text=""),
    error("fenced", '```json\n{"name": "get_weather", "arguments": {"city": "Paris"}\n```'),
    error("fenced", '```json\n{"name": "get_weather", "arguments": {"city": "Par'),
    error("fenced", f"```json\n{PARIS_JSON}\nand more\n```"),
    no_call("fenced", '```json\n{"city": "Paris", "degrees": 21}\n```'),
    no_call("fenced", f"```python\ncall = {PARIS_JSON}\n```"),
    no_call("fenced", f"```python\n{PARIS_JSON}\n```"),
    no_call("fenced", f"An example of a call:\n```json\n{PARIS_JSON}\n```"),
    no_call("fenced", f"You can use it like this:\n\n```json\n{PARIS_JSON}\n```\n"),
    no_call("fenced", f"```markdown\n{tagged(PARIS_JSON)}\n```"),
    no_call("fenced", f"```json\n// a call\n{{}}\n```\nThat is {PARIS_JSON} in short."),
    no_call("fenced", "```"),
    no_call("fenced", "`` ` `` and ~~struck~~ and ``code``"),
]

CREW = [
    called("crew", '{"tool_name": "add", "arguments": {"a": 1, "b": 2}}', ADD),
    called("crew", "{'tool_name': 'add', 'arguments': {'a': 1, 'b': 2}}", ADD),
    called("crew", '{"tool_name": "now"}', NOW),
    called("crew", '{"tool_name": "now", "arguments": null}', NOW),
    called("crew", '{"tool_name": "add", "arguments": "{\'a\': 1, \'b\': 2}"}', ADD),
    asked("crew", 'Using a tool:\n{"tool_name": "add", "arguments": {"a": 1, "b": 2}}', ADD),
    called("crew", '```json\n{"tool_name": "add", "arguments": {"a": 1, "b": 2}}\n```', ADD, reads="crew"),
    called("crew", 'Action: add\nAction Input: {"a": 1, "b": 2}', ADD, reads="crew"),
    error("crew", '{"tool_name": "add", "arguments": {"a": 1, "b": 2}'),
    error("crew", '{"tool_name": "add", "arguments": [1, 2]}'),
    error("crew", '{"tool_name": "add"}, "arguments": {"a": 1, "b": 2}}'),
    error("crew", '{"tool_name": "add", "arguments": {}},\n "a": 1}'),
    error("crew", '{"tool_name": "add", "arguments": {"a": 1, "b": 2}}}'),
    asked("crew", '{"tool_name": "now"}\n\n"Now" it is.', NOW),
    error("crew", '{"tool_name": "add", "arguments": {"a": 1}, "also": 5}'),
    no_call("crew", '{"tool_name": "no_such_tool"}'),
    no_call("crew", '{"tool_name": 5, "arguments": {}}'),
]

BAR = "\uff5c"


def deepseek(*calls: str) -> str:
    """Calls as DeepSeek writes them; `calls` are what stands between the tokens of one each."""
    inner = "\n".join([f"{token('tool call begin')}{call}{token('tool call end')}" for call in calls])
    return f"{token('tool calls begin')}{inner}{token('tool calls end')}"


def token(words: str) -> str:
    return f"<{BAR}{words.replace(' ', chr(0x2581))}{BAR}>"


SEP = token("tool sep")
PARIS_ARGUMENTS = '{"city": "Paris"}'

DEEPSEEK = [
    called("deepseek", deepseek(f"get_weather{SEP}{PARIS_ARGUMENTS}"), PARIS, text=""),
    called("deepseek", deepseek(f"function{SEP}get_weather\n```json\n{PARIS_ARGUMENTS}\n```"), PARIS, text=""),
    called(
        "deepseek",
        f"I will look.{deepseek(f'get_weather{SEP}{PARIS_ARGUMENTS}', f'now{SEP}{{}}')}{token('end of sentence')}",
        PARIS,
        NOW,
        text="I will look.",
    ),
    called("deepseek", deepseek(f"get_weather{SEP}{PARIS_ARGUMENTS}"), PARIS, reads="deepseek"),
    called("deepseek", deepseek(f"now{SEP}{{}}").replace(BAR, "|").replace(chr(0x2581), "_"), NOW, text=""),
    called("deepseek", f"{token('tool call begin')}now{SEP}{{}}{token('tool call end')}", NOW, text=""),
    called(
        "deepseek",
        f'<{BAR}DSML{BAR}function_calls>\n<{BAR}DSML{BAR}invoke name="get_weather">\n<{BAR}DSML{BAR}parameter '
        f'name="city" string="true">Paris</{BAR}DSML{BAR}parameter>\n<{BAR}DSML{BAR}parameter name="days" '
        f'string="false">2</{BAR}DSML{BAR}parameter>\n</{BAR}DSML{BAR}invoke>\n</{BAR}DSML{BAR}function_calls>',
        ("get_weather", {"city": "Paris", "days": 2}),
        reads="deepseek",
    ),
    error("deepseek", deepseek(f'get_weather{SEP}{{"city": "Par')),
    error("deepseek", deepseek(f"get_weather{PARIS_ARGUMENTS}")),
    error("deepseek", deepseek(f"get_weather{SEP}{PARIS_ARGUMENTS}")[:-30]),
    error("deepseek", deepseek(f"{SEP}{PARIS_ARGUMENTS}")),
    error("deepseek", deepseek()),
    no_call("deepseek", f"It writes {deepseek(f'get_weather{SEP}{PARIS_ARGUMENTS}')} for that."),
    no_call("deepseek", deepseek(f"get_weather{SEP}{PARIS_ARGUMENTS}"), reads="hermes"),
]


def kimi(*calls: str) -> str:
    inner = "".join([f"<|tool_call_begin|>{call}<|tool_call_end|>" for call in calls])
    return f"<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>"


KIMI = [
    called("kimi", kimi(f"functions.get_weather:0<|tool_call_argument_begin|>{PARIS_ARGUMENTS}"), PARIS, text=""),
    called(
        "kimi",
        "Let me look."
        + kimi(
            f"functions.get_weather:0<|tool_call_argument_begin|>{PARIS_ARGUMENTS}",
            "functions.now:1 <|tool_call_argument_begin|> {}",
        ),
        PARIS,
        NOW,
        text="Let me look.",
        reads="kimi",
    ),
    called("kimi", kimi("now<|tool_call_argument_begin|>{}"), NOW),
    error("kimi", kimi('functions.get_weather:0<|tool_call_argument_begin|>{"city": "Par')),
    error("kimi", kimi("functions.get_weather:0")),
    error("kimi", "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}"),
    no_call("kimi", f"It writes `{kimi('functions.now:0<|tool_call_argument_begin|>{}')}`."),
]


def harmony(name: str, arguments: str) -> str:
    return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>"


THOUGHTS = "<|channel|>analysis<|message|>The user asks: weather?<|end|>"

HARMONY = [
    called("harmony", harmony("get_weather", PARIS_ARGUMENTS), PARIS, text=""),
    called("harmony", harmony("get_weather", PARIS_ARGUMENTS).removesuffix("<|call|>"), PARIS, text=""),
    called("harmony", f"{THOUGHTS}<|start|>assistant{harmony('get_weather', PARIS_ARGUMENTS)}", PARIS, text=THOUGHTS),
    called(
        "harmony",
        f"{THOUGHTS}<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{{}}<|call|>",
        NOW,
    ),
    error("harmony", harmony("get_weather", '{"city": "Par')),
    error("harmony", harmony("get_weather", "Paris")),
    no_call("harmony", f"{THOUGHTS}<|start|>assistant<|channel|>final<|message|>It is {harmony('now', '{}')}."),
    no_call("harmony", f"<|channel|>analysis<|message|>I could write {harmony('now', '{}')}<|end|>"),
    no_call("harmony", "<|channel|>final<|message|>It is sunny.<|return|>"),
]


def invoke(name: str, *, wrapper: str = "", prefix: str = "", **arguments: str) -> str:
    inner = "\n".join(
        [f'<{prefix}parameter name="{key}">{value}</{prefix}parameter>' for key, value in arguments.items()]
    )
    call = f'<{prefix}invoke name="{name}">\n{inner}\n</{prefix}invoke>'
    return f"<{wrapper}>\n{call}\n</{wrapper}>" if wrapper else call


INVOKE = [
    called("invoke", invoke("get_weather", city="Paris"), PARIS, text=""),
    called("invoke", invoke("get_weather", wrapper="function_calls", city="Paris"), PARIS, text=""),
    called(
        "invoke", invoke("get_weather", wrapper="antml:function_calls", prefix="antml:", city="Paris"), PARIS, text=""
    ),
    called("invoke", invoke("get_weather", wrapper="minimax:tool_call", city="Paris"), PARIS, reads="minimax"),
    called("invoke", invoke("add", wrapper="function_calls", a="1", b="2"), ADD, reads="anthropic"),
    called("invoke", invoke("search", query="5", tags='["a"]'), ("search", {"query": "5", "tags": ["a"]})),
    called("invoke", f"I look.\n{invoke('now')}", NOW, text="I look."),
    called("invoke", '<invoke name="now"></invoke>', NOW),
    error("invoke", invoke("get_weather", city="Paris").removesuffix("</invoke>")),
    error("invoke", '<invoke name="get_weather"><parameter name="city">Paris</invoke>'),
    error("invoke", '<invoke name="get_weather"><parameter name="city">Paris</parameter><parameter name="city">'),
    error("invoke", "<function_calls>\nget_weather\n</function_calls>"),
    error("invoke", '<invoke named="now"></invoke>'),
    no_call("invoke", f"Anthropic's models write {invoke('now')} for that."),
    no_call("invoke", f"```xml\n{invoke('now')}\n```", reads="anthropic"),
    no_call("invoke", "<invoke>now</invoke>"),
]

PHI = [
    called("phi", f"functools[{PARIS_JSON}]", PARIS, text=""),
    called("phi", f"<|tool_call|>[{PARIS_JSON}, {OSLO_JSON}]<|/tool_call|>", PARIS, OSLO, reads="phi"),
    called("phi", f"functools[{PARIS_JSON}]", PARIS, reads="phi"),
    error("phi", 'functools[{"name": "get_weather", "arguments": {"city": "Par'),
    no_call("phi", "Use functools.cache and functools for that."),
    no_call("phi", f"The module functools[{PARIS_JSON}] has it."),
]

LISTS = [
    asked("list", f"I will make these calls:\n- {ADD_JSON}\n- {PARIS_JSON}", ADD, PARIS),
    asked("list", f"Let me call:\n\n1. {tagged(ADD_JSON)}\n2. {tagged(PARIS_JSON)}", ADD, PARIS),
    asked("list", f"I'll call two tools:\n* {ADD_JSON}\n* {PARIS_JSON}\nOne moment.", ADD, PARIS),
    no_call("list", f"You could make these calls:\n- {ADD_JSON}\n- {PARIS_JSON}"),
    no_call("list", f"The page lists:\n- {tagged(ADD_JSON)}\n- {tagged(PARIS_JSON)}"),
]

BROKEN_UNMARKED = [
    Case(
        shape="behind a broken one",
        reply='{"name": "add", "arguments": {"a": 1, "b": ]}\n{"name": "add", "arguments": {"a": 1, "b": 2}}',
        calls=(ADD,),
        is_error=True,
    ),
    Case(
        shape="behind a broken one",
        reply=f'{{"name": "add", "arguments": {{"a": "x}}}}\n\n{PARIS_JSON}\n\nIt "is" sunny.',
        displaced=(PARIS,),
        is_error=True,
        text=f'{{"name": "add", "arguments": {{"a": "x}}}}\n\n{PARIS_JSON}\n\nIt "is" sunny.',
    ),
    Case(
        shape="behind a broken one",
        reply=f"[add(a=1, b=x)]\n{PARIS_JSON}",
        calls=(PARIS,),
        is_error=True,
        text="",
    ),
    Case(
        shape="behind a broken one",
        reply=f"Action: add\nAction Input: a and b\n\n{PARIS_JSON}",
        calls=(PARIS,),
        is_error=True,
        text="",
    ),
]

NAMED = [
    no_call("named format", tagged(PARIS_JSON), reads="react"),
    no_call("named format", PARIS_JSON, reads="hermes"),
    no_call("named format", '[get_weather(city="Paris")]', reads="json"),
    no_call("named format", f"[TOOL_CALLS] [{PARIS_JSON}]", reads="qwen"),
    called("named format", tagged(PARIS_JSON), PARIS, reads="hermes"),
    called("named format", f"[TOOL_CALLS] [{PARIS_JSON}]", PARIS, reads="mistral"),
    called("named format", function("get_weather", city="Paris"), PARIS, reads="qwen"),
    called("named format", '[get_weather(city="Paris")]', PARIS, reads="pythonic"),
    called("named format", f"```json\n{PARIS_JSON}\n```", PARIS, reads="fenced"),
]

MIXED = [
    asked("several", f"{tagged(PARIS_JSON)}\n{function('now')}\n{ADD_JSON}", PARIS, NOW, ADD),
    asked("several", f'{PARIS_JSON}\nAction: add\nAction Input: {{"a": 1, "b": 2}}', PARIS, ADD),
    asked("several", f"{tagged(PARIS_JSON)}\n\nIt returns data like {ADD_JSON} then.", PARIS, ADD),
]

CORPUS = [
    *[*HERMES, *GLM, *REACT, *LLAMA, *MISTRAL, *QWEN, *PYTHONIC, *JSON, *FENCED, *CREW, *NAMED, *MIXED],
    *[*DEEPSEEK, *KIMI, *HARMONY, *INVOKE, *PHI, *LISTS, *BROKEN_UNMARKED],
]
