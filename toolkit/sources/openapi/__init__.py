"""Operations of OpenAPI 3.0 and 3.1 documents as tools."""

try:
    from toolkit.sources.openapi.auth import ApiKey, Auth, Basic, Bearer, OAuth2ClientCredentials
    from toolkit.sources.openapi.document import Operation
    from toolkit.sources.openapi.tools import Filter, Only, OpenApiOptions, OpenApiTool, openapi_tools
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("toolkit"):
        raise
    package = error.name.partition(".")[0]
    raise ModuleNotFoundError(
        f"{package} is not installed: `pip install 'toolkit-sdk[openapi]'`", name=package
    ) from error

__all__ = [
    "ApiKey",
    "Auth",
    "Basic",
    "Bearer",
    "Filter",
    "OAuth2ClientCredentials",
    "Only",
    "OpenApiOptions",
    "OpenApiTool",
    "Operation",
    "openapi_tools",
]
