"""Attach protocol extensions (SEP-2133) to the lowlevel server, through the SDK's public API.

The SDK applies extensions only to its `MCPServer`. Methods, settings and the interceptor of tool calls work the same
here. Tools and resources come from the registry, so an extension that brings its own is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server.context import HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding, RequestHandler, compose_tool_call_handler
from mcp.server.lowlevel import Server

from coretools.errors import BadSetting
from coretools.operations.call import Capability

HandlerWrapper = Callable[[RequestHandler], RequestHandler]


class WrappingExtension(Extension):
    """An extension that wraps handlers of the server."""

    def wraps(self) -> Mapping[str, HandlerWrapper]:
        """Return the wrappers of handlers, by protocol method."""
        return {}


def attach_extensions(server: Server[Any], extensions: Sequence[Extension]) -> None:
    """Attach extensions to a server whose handlers are set; the first is the outermost.

    Raises:
        BadSetting: an extension is attached twice, serves a method that is served already, or brings tools or
            resources.
    """
    for extension in extensions:
        _attach(server, extension)
    for extension in reversed(extensions):
        for name, wrap in (extension.wraps() if isinstance(extension, WrappingExtension) else {}).items():
            _wrap(server, name, wrap)
    between = [one for one in extensions if type(one).intercept_tool_call is not Extension.intercept_tool_call]
    if between:
        _wrap(server, "tools/call", lambda handler: compose_tool_call_handler(between, handler))


def has_capability(capabilities: types.ClientCapabilities | None, capability: Capability) -> bool:
    """Whether the client declared a capability, or an extension by its identifier."""
    if capabilities is None:
        return False
    if "/" in capability:
        return capability in (capabilities.extensions or {})
    return capability in types.ClientCapabilities.model_fields and getattr(capabilities, capability) is not None


def declared_settings(context: ServerRequestContext[Any], identifier: str) -> Mapping[str, Any] | None:
    """Return the client's settings of an extension; None if it declared it neither here nor in its handshake."""
    capabilities = context.session.client_capabilities
    return (capabilities.extensions or {}).get(identifier) if capabilities else None


def require_extension(context: ServerRequestContext[Any], identifier: str) -> None:
    """Require that the client declared an extension.

    Raises:
        MCPError: -32021, with the missing capability (SEP-2133).
    """
    if declared_settings(context, identifier) is None:
        missing = types.ClientCapabilities(extensions={identifier: {}})
        raise MCPError(
            code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message=f"the client did not declare the extension {identifier}",
            data={"requiredCapabilities": missing.model_dump(by_alias=True, mode="json", exclude_none=True)},
        )


def _attach(server: Server[Any], extension: Extension) -> None:
    if extension.identifier in server.extensions:
        raise BadSetting(f"extension {extension.identifier}: already attached")
    if extension.tools() or extension.resources():
        raise BadSetting(f"extension {extension.identifier}: brings tools or resources; add them to the registry")
    server.extensions[extension.identifier] = extension.settings()
    for method in extension.methods():
        _bind(server, extension, method)


def _bind(server: Server[Any], extension: Extension, method: MethodBinding) -> None:
    if server.get_request_handler(method.method) is not None:
        raise BadSetting(f"extension {extension.identifier}: {method.method} already has a handler")

    async def gated(context: ServerRequestContext[Any], params: Any) -> HandlerResult:
        versions = method.protocol_versions
        if versions is not None and context.protocol_version not in versions:
            raise MCPError(code=types.METHOD_NOT_FOUND, message="Method not found", data=method.method)
        return await method.handler(context, params)

    server.add_request_handler(method.method, method.params_type, gated)


def _wrap(server: Server[Any], name: str, wrap: HandlerWrapper) -> None:
    entry = server.get_request_handler(name)
    if entry is not None:
        server.add_request_handler(name, entry.params_type, wrap(entry.handler))
