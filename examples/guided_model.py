"""A small model is led by steps that are held to schemas: it can't write a call that is wrong in form, or made up.

One call is filled in first, then a list of calls where the request has more values of that kind. The model here is a
stand-in that would always ask for the weather in Paris; a real one is
``GuidedProvider(OpenAIProvider("my-model", base_url="http://127.0.0.1:8080/v1", api_key="none"))``.

Prints:

    How warm is it in Oslo and in Rome?
      it chose of: answer, get_weather
      it filled in: ["Oslo", "Rome"]
      it filled in: ["Oslo", "Rome"]
      called: get_weather {"city":"Oslo"}, get_weather {"city":"Rome"}
    tell me a joke
      it chose of: answer, get_weather
      it filled in: ["Paris"]
      answered: I know none.
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
    city = properties["calls"]["items"]["properties"]["city"] if several else properties["city"]
    cities = [name for name in city["enum"] if name in ("Oslo", "Rome")] if "enum" in city else ["Paris"]
    print(f"  it filled in: {json.dumps(cities)}")
    values = [{"city": name} for name in cities]
    return json.dumps({"calls": values} if several else values[0])


async def main() -> None:
    """Ask for something that was said, and for something that was not."""
    provider = GuidedProvider(FunctionProvider(fill_in))
    tools = ToolRegistry([get_weather]).definitions()
    for prompt in ("How warm is it in Oslo and in Rome?", "tell me a joke"):
        print(prompt)
        response = await provider.generate(ChatRequest(messages=[UserMessage(prompt)], tools=tools))
        calls = ", ".join([f"{call.name} {call.arguments}" for call in response.tool_calls])
        print(f"  called: {calls}" if calls else f"  answered: {response.text}")


if __name__ == "__main__":
    anyio.run(main)
