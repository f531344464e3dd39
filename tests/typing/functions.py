"""What a decorated function still is: checked by pyright and mypy, never run."""

from collections.abc import AsyncIterator, Callable
from typing import Any, assert_type

from toolkit import Tool, ToolContext, ToolRegistry, ToolRetryConfig, tool, tool_from_function, tool_with_ctx


class App:
    user: str = "ada"


@tool
def add(a: int, b: int = 0) -> int:
    return a + b


@tool(name="plus", timeout=5, retry=ToolRetryConfig(max_retries=1), tags={"math"})
def add_with_options(a: int, b: int = 0) -> int:
    return a + b


@tool
async def fetch(url: str) -> bytes:
    return url.encode()


@tool
async def lines(path: str) -> AsyncIterator[str]:
    yield path


@tool_with_ctx
def greet(app: App, greeting: str) -> str:
    return greeting + app.user


@tool_with_ctx(requires_approval=True)
async def remove(app: App, name: str) -> None: ...


@tool_with_ctx
def report(context: ToolContext[App], steps: int) -> int:
    assert_type(context.state, App)
    return steps


assert_type(add(1), int)
assert_type(add(1, b=2), int)
assert_type(add_with_options(1), int)
assert_type(lines("x"), AsyncIterator[str])
assert_type(greet(App(), "hi"), str)
assert_type(add.invoke({"a": 1}), int)
assert_type(fetch.invoke({"url": "x"}), bytes)
assert_type(greet.invoke({"greeting": "x"}, App()), str)
assert_type(remove.invoke({"name": "x"}, App()), None)
assert_type(add.parse_args('{"a": 1}'), dict[str, Any])
assert_type(tool_from_function(max, name="largest").options.timeout, float | None)


async def awaited() -> None:
    assert_type(await fetch("x"), bytes)
    assert_type(await remove(App(), name="x"), None)
    assert_type(await fetch.ainvoke({"url": "x"}), bytes)
    assert_type(await add.ainvoke({"a": 1}), int)
    assert_type(await remove.ainvoke({"name": "x"}, App()), None)
    assert_type(await greet.ainvoke({"greeting": "x"}, App()), str)
    assert_type(await Desk.open_up.ainvoke({"key": "x"}), bool)
    assert_type(await Desk().read.ainvoke({"page": 1}), str)


add("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
add()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
greet("hi")  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
report(App(), 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
tool(timeout="soon")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
tool(tiemout=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

fits_everywhere: Tool[App] = add
fits_its_own: Tool[App] = greet
needs_app: Tool[object] = greet  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
as_function: Callable[[int], int] = add


class Counter:
    @tool
    def bump(self, by: int) -> int:
        return by

    @tool_with_ctx
    def bump_for(self, app: App, by: int) -> str:
        return app.user * by


counter = Counter()
assert_type(counter.bump(1), int)
assert_type(counter.bump_for(App(), 1), str)


# A context without a type is a `SchemaError` at decoration. Checkers see one that is missing, and none that is Any.
@tool_with_ctx
def without_type(app, by: int) -> int:  # type: ignore[no-untyped-def]  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
    return by


@tool_with_ctx
def with_any(app: Any, by: int) -> int:
    return by


class Stair:
    @classmethod
    @tool
    def up(cls, steps: int) -> str:
        return cls.__name__ * steps

    @tool
    @classmethod
    def down(cls, steps: int) -> str:
        return cls.__name__ * steps


assert_type(Stair().up(1), str)
assert_type(Stair().down(1), str)


ToolRegistry([add]).configured("add", timeout=5, requires_approval=True)
ToolRegistry([add]).configured(strict=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
ToolRegistry([add]).configured(run_in_thread=False)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


class Desk:
    @staticmethod
    @tool
    def lock(key: str) -> int:
        return len(key)

    @tool
    @staticmethod
    def unlock(key: str) -> int:
        return len(key)

    @tool
    @staticmethod
    async def open_up(key: str) -> bool:
        return bool(key)

    @tool
    async def read(self, page: int) -> str:
        return "x" * page


assert_type(Desk.lock("x"), int)
assert_type(Desk().lock("x"), int)
assert_type(Desk.lock.invoke({"key": "x"}), int)
assert_type(Desk.unlock("x"), int)
assert_type(Desk().unlock("x"), int)
assert_type(Desk.unlock.invoke({"key": "x"}), int)
assert_type(Desk().unlock.invoke({"key": "x"}), int)
assert_type(Desk.open_up.invoke({"key": "x"}), bool)
assert_type(Desk().read.invoke({"page": 1}), str)
assert_type(Stair.up(1), str)
assert_type(Stair.down(1), str)
assert_type(Stair.up.invoke({"steps": 1}), str)
assert_type(Stair().up.invoke({"steps": 1}), str)
assert_type(Stair.down.invoke({"steps": 1}), str)
assert_type(Stair().down.invoke({"steps": 1}), str)
