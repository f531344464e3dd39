"""Operations of OpenAPI 3.0 and 3.1 documents as tools."""

from toolkit.errors import naming_extra

with naming_extra("openapi"):
    from toolkit.sources.openapi.auth import ApiKey, Auth, Basic, Bearer, OAuth2ClientCredentials
    from toolkit.sources.openapi.document import Operation
    from toolkit.sources.openapi.tools import Filter, Only, OpenApiOptions, OpenApiTool, openapi_tools

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
