"""A small model is led by steps that are held to schemas: it can't write a call that is wrong in form.

The tool is chosen first, then its arguments are filled in. An argument that stands nowhere in the conversation is
marked, so that permissions and approval can ask about it. The model here is a stand-in that would always ask for the
weather in Paris; a real one is
``GuidedProvider(OpenAIProvider("my-model", base_url="http://127.0.0.1:8080/v1", api_key="none"))``.

Prints:

    How warm is it in Paris?
      it chose of: answer, get_weather
      it filled in the arguments
      called: get_weather {"city":"Paris"}
    How warm is it in Oslo?
      it chose of: answer, get_weather
      it filled in the arguments
      called: get_weather {"city":"Paris"}, which nobody wrote: city
    tell me a joke
      it chose of: answer, get_weather
      it filled in the arguments
      called: get_weather {"city":"Paris"}, which nobody wrote: city
"""

import json

import anyio

from toolkit import ChatRequest, ToolRegistry, UserMessage, tool
from toolkit.guided import GuidedProvider
from toolkit.testing import FunctionProvider


@tool
def get_weather(city: str) -> str:
    """Get the weather in a city."""
    return f"18 degrees in {city}"


def fill_in(request: ChatRequest) -> str:
    """Do what a server does that holds a reply to a schema, with a model that knows nothing but Paris."""
    if request.response_format is None:
        return "I know none."
    properties = request.response_format.schema["properties"]
    if "tool" in properties:
        print(f"  it chose of: {', '.join(sorted(properties['tool']['enum']))}")
        return '{"tool": "get_weather"}'
    several = "calls" in properties
    print("  it filled in the arguments")
    return json.dumps({"calls": [{"city": "Paris"}]} if several else {"city": "Paris"})


async def main() -> None:
    """Ask for something that was said, and for something that was not."""
    provider = GuidedProvider(FunctionProvider(fill_in))
    tools = ToolRegistry([get_weather]).definitions()
    for prompt in ("How warm is it in Paris?", "How warm is it in Oslo?", "tell me a joke"):
        print(prompt)
        response = await provider.generate(ChatRequest(messages=[UserMessage(prompt)], tools=tools))
        for call in response.tool_calls:
            marked = f", which nobody wrote: {', '.join(call.unsaid)}" if call.unsaid else ""
            print(f"  called: {call.name} {call.arguments}{marked}")
        if not response.tool_calls:
            print(f"  answered: {response.text}")


if __name__ == "__main__":
    anyio.run(main)
