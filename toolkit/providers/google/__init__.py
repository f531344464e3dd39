"""Google's Gemini, on the official SDK: the Gemini API and Vertex AI."""

try:
    from toolkit.providers.google.client import GoogleProvider
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("toolkit"):
        raise
    raise ModuleNotFoundError(
        f"{error.name} is not installed: `pip install 'toolkit-sdk[google]'`", name=error.name
    ) from error

__all__ = ["GoogleProvider"]
