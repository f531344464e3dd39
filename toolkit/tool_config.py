"""Tools from a YAML file: a preset of built-in ones, and plugins.

::

    tools:
      preset: readonly            # coding, readonly, all or none
      work_dir: .                 # the folder of the built-in tools
      plugins:
        - path: python3
          args: ["./plugins/stats.py"]
        - path: ./plugins/weather
          args: ["--key", "${WEATHER_KEY}", "--units", "${UNITS:-metric}"]
          prefix: weather
          requires_approval: true   # and each other option of `plugin_tools` that is no function

Paths count from the folder of the file, and those of a plugin with a ``cwd`` from that. ``${NAME}`` and
``${NAME:-default}`` in any text are replaced by variables of the environment, after the file has been read as YAML:
their values can't change its structure. The default replaces a variable that is not set or is empty. Other keys of the
file are ignored.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from toolkit.builtin import coding_tools
from toolkit.calls.registration import Effect, EnvVar, ToolRetryConfig
from toolkit.chat import Trust, VendorTool
from toolkit.checked_yaml import check_sections, expand_variables, read_yaml_file
from toolkit.errors import ConfigurationError, DuplicateToolError
from toolkit.schema.nodes import is_object
from toolkit.sources.plugin import plugin_tools
from toolkit.tools.registry import ToolRegistry

__all__ = ["ToolConfig", "load_tools"]


class _RetryOptions(BaseModel):
    """The settings of `ToolRetryConfig`, without its function."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    max_retries: Annotated[int, Field(ge=0)] = 3
    initial_backoff: Annotated[float, Field(ge=0)] = 0.1
    max_backoff: Annotated[float, Field(ge=0)] = 5.0
    backoff_multiplier: Annotated[float, Field(ge=0)] = 2.0
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.5


class _PluginOptions(BaseModel):
    """The options of a plugin's tools, as far as YAML has them: `ToolOptions` without functions."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    label: str = ""
    retry: _RetryOptions | None = None
    timeout: Annotated[float, Field(gt=0)] | None = None
    strict: bool | None = None
    argument_repair: bool | None = None
    requires_approval: bool | Literal["unsaid"] = False
    sequential: bool = False
    concurrency: Annotated[int, Field(gt=0)] | None = None
    lock: str | None = None
    isolation: Literal["process"] | None = None
    idempotent: bool = False
    on_crash: Literal["tell", "rerun", "resume"] | None = None
    result_as_answer: bool = False
    max_usage_count: Annotated[int, Field(gt=0)] | None = None
    usage_scope: Literal["run", "process"] = "run"
    max_output_chars: Annotated[int, Field(gt=0)] | None = None
    keep_output: Literal["head", "tail", "both"] | None = None
    env_vars: list[EnvVar] = Field(default_factory=list[EnvVar])
    cache: bool | None = None
    should_cache: bool | None = None
    run_in_thread: bool = True
    callers: list[Literal["model", "code"]] = Field(default_factory=list[Literal["model", "code"]])
    eager_arguments: bool = False
    cache_breakpoint: bool = False
    shows_output_schema: bool = False
    defer: bool = False
    group: str = ""
    native_as: VendorTool | None = None
    tags: list[str] = Field(default_factory=list[str])
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    trust: Trust = "untrusted"
    effects: list[Effect] = Field(default_factory=list[Effect])
    destinations: list[str] | None = None


class PluginConfig(_PluginOptions):
    """One plugin: the arguments of `toolkit.sources.plugin.plugin_tools`, and a prefix for the names of its tools."""

    path: str
    args: list[str] = Field(default_factory=list[str])
    env: dict[str, str] = Field(default_factory=dict[str, str])
    env_allowlist: list[str] | None = Field(default_factory=list[str])
    cwd: str = "."
    describe_timeout: Annotated[float, Field(gt=0)] = 5.0
    prefix: str | None = None

    def list_options(self) -> dict[str, Any]:
        """Return the options of its tools that the file gives."""
        given = {name: getattr(self, name) for name in _PluginOptions.model_fields if name in self.model_fields_set}
        if self.retry is not None:
            given["retry"] = ToolRetryConfig(**self.retry.model_dump(exclude_unset=True))
        return given


class ToolConfig(BaseModel):
    """The section ``tools`` of a file."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    preset: Literal["coding", "readonly", "all", "none"] = "none"
    work_dir: str = "."
    plugins: list[PluginConfig] = Field(default_factory=list[PluginConfig])


def load_tools(
    path: str | Path, *, environment: Mapping[str, str] | None = None
) -> AbstractAsyncContextManager[ToolRegistry]:
    """Read a YAML file of tools, and yield a registry of them for the duration of the block.

    ::

        async with load_tools("tools.yaml") as registry:
            result = await tool_loop(provider, registry, "What is in this folder?")

    Args:
        path: The file.
        environment: Where variables are looked up; None means this process's.

    Raises:
        ConfigurationError: The file can't be read, is invalid, or needs a variable that is not set; or, on
            entering, two tools have one name: a ``prefix:`` helps.
        PluginError: On entering: a plugin can't be started.
    """
    file = Path(path)
    section = _read_tools_section(file)
    environment = os.environ if environment is None else environment
    used = set[str]()
    expanded = expand_variables(section, environment, f"{file}: tools", used)

    def read(tools: ToolConfig) -> None: ...

    config: ToolConfig = check_sections({"tools": expanded}, read, file, secrets=used)["tools"]
    return _open_tools(config, file.absolute().parent)


@asynccontextmanager
async def _open_tools(config: ToolConfig, folder: Path) -> AsyncGenerator[ToolRegistry]:
    registry = ToolRegistry[object]()
    if config.preset != "none":
        registry |= ToolRegistry(coding_tools(folder / config.work_dir, config.preset))
    async with AsyncExitStack() as plugins:
        for plugin in config.plugins:
            tools = await plugins.enter_async_context(
                plugin_tools(
                    plugin.path,
                    plugin.args,
                    env=plugin.env,
                    env_allowlist=plugin.env_allowlist,
                    cwd=folder / plugin.cwd,
                    describe_timeout=plugin.describe_timeout,
                    **plugin.list_options(),
                )
            )
            more = ToolRegistry(tools)
            try:
                registry |= more if plugin.prefix is None else more.prefixed(plugin.prefix)
            except DuplicateToolError as error:
                raise ConfigurationError(
                    f"the plugin {plugin.path}: {error}; give it a 'prefix:' of its own in the file"
                ) from error
        yield registry


def _read_tools_section(file: Path) -> Any:
    content = read_yaml_file(file)
    if not is_object(content) or "tools" not in content:
        known = " and ".join(f"'{name}'" for name in ToolConfig.model_fields if is_object(content) and name in content)
        what = known or "'preset', 'work_dir' and 'plugins'"
        raise ConfigurationError(f"{file}: the key 'tools' is missing: {what} stand below it")
    return {} if content["tools"] is None else content["tools"]
