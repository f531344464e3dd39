"""A model on this machine: llama.cpp's server in a process of its own, spoken to as any other server."""

try:
    from toolkit.providers.local.provider import LocalProvider
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("toolkit"):
        raise
    from toolkit.providers.local.gguf import INSTALL_COMMAND

    raise ModuleNotFoundError(f"{error.name} is not installed: `{INSTALL_COMMAND}`", name=error.name) from error

__all__ = ["LocalProvider"]
