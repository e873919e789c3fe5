"""HTML views of tool results: the extension `io.modelcontextprotocol/ui` (MCP Apps, 2026-01-26).

For a client that declares it, in either era, tools name the page that shows their results. A page is one HTML document
without network access: its content security policy allows its own script and style, by hash, and no address. Other
clients see no difference.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import mcp_types as types
from mcp.server.context import HandlerResult, ServerRequestContext
from mcp.server.extension import RequestHandler

from coretools.errors import BadSetting
from coretools.protocol.extensions import HandlerWrapper, WrappingExtension, declared_settings

IDENTIFIER = "io.modelcontextprotocol/ui"

MIME_TYPE = "text/html;profile=mcp-app"

PAGE_TTL_SECONDS = 3_600
"""How long a client may cache a page; it changes only with the version of the server."""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body data-state="waiting">
<main id="view"><p class="waiting">waiting for the result</p></main>
<script>{script}</script>
</body>
</html>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An HTML page that shows the results of a tool."""

    tool: str
    uri: str
    description: str
    page: Callable[[], str]
    """Returns the HTML document; called when a client reads it."""


class Views(WrappingExtension):
    """The extension: pages for clients that can show them."""

    identifier = IDENTIFIER

    def __init__(self, views: Sequence[View]) -> None:
        self._of_tool = {view.tool: view for view in views}
        self._at = {view.uri: view for view in views}
        wrong = [view.uri for view in views if not view.uri.startswith("ui://")]
        if wrong or len(self._of_tool) < len(views):
            raise BadSetting(f"views: one for each tool, at an address ui://...; got {', '.join(wrong) or 'two'}")

    def wraps(self) -> Mapping[str, HandlerWrapper]:
        """Wrap the lists, which name the pages, and the reading of a page."""
        return {
            "tools/list": partial(self._around, self._tools),
            "resources/list": partial(self._around, self._resources),
            "resources/read": self._read,
        }

    def _around(self, change: Callable[[Any], HandlerResult], handler: RequestHandler) -> RequestHandler:
        """Return a handler that changes the result for clients that show pages, and only for them."""

        async def answer(context: ServerRequestContext[Any, Any], params: Any) -> HandlerResult:
            result = await handler(context, params)
            return change(result) if supports_apps(context) else result

        return answer

    def _tools(self, result: types.ListToolsResult) -> types.ListToolsResult:
        tools = [self._linked(tool, self._of_tool.get(tool.name)) for tool in result.tools]
        # Private: a shared cache must not give it to a client without the extension.
        return result.model_copy(update={"tools": tools, "cache_scope": "private"})

    def _linked(self, tool: types.Tool, view: View | None) -> types.Tool:
        if view is None:
            return tool
        return tool.model_copy(update={"meta": {**(tool.meta or {}), "ui": {"resourceUri": view.uri}}})

    def _resources(self, result: types.ListResourcesResult) -> types.ListResourcesResult:
        if result.next_cursor is not None:
            return result
        pages = [
            types.Resource(uri=view.uri, name=view.tool, description=view.description, mime_type=MIME_TYPE)
            for view in self._at.values()
        ]
        return result.model_copy(update={"resources": [*result.resources, *pages], "cache_scope": "private"})

    def _read(self, handler: RequestHandler) -> RequestHandler:
        """Return a handler that serves pages to every client: they hold no data of anyone."""

        async def answer(context: ServerRequestContext[Any, Any], params: Any) -> HandlerResult:
            view = self._at.get(params.uri)
            if view is None:
                return await handler(context, params)
            contents = types.TextResourceContents(
                uri=view.uri, mime_type=MIME_TYPE, text=view.page(), _meta={"ui": {"prefersBorder": True}}
            )
            return types.ReadResourceResult(contents=[contents], ttl_ms=PAGE_TTL_SECONDS * 1000, cache_scope="public")

        return answer


def supports_apps(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client declared that it shows pages of this MIME type."""
    settings = declared_settings(context, IDENTIFIER) or {}
    kinds = settings.get("mimeTypes")
    return isinstance(kinds, list) and MIME_TYPE in kinds


@cache
def built_in_page(name: str, title: str) -> str:
    """Return a built-in page: bridge, script and style, and a policy that allows exactly these."""
    style = _file("view.css")
    script = f"{_file('bridge.js')}\n{_file(f'{name}.js')}"
    policy = (
        f"default-src 'none'; script-src 'sha256-{_hash(script)}'; style-src 'sha256-{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(policy=policy, title=title, style=style, script=script)


def _file(name: str) -> str:
    from importlib.resources import files  # imported late: only clients with views need it

    return (files("coretools.protocol") / "html" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


BUILT_IN_VIEWS = (
    View(
        tool="git_diff",
        uri="ui://coretools/diff",
        description="Differences by file and hunk",
        page=partial(built_in_page, "diff", "Differences"),
    ),
    View(
        tool="ci_test",
        uri="ui://coretools/tests",
        description="What a test run came to",
        page=partial(built_in_page, "tests", "Test report"),
    ),
)
