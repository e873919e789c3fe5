"""Header names of Streamable HTTP, as an ASGI scope has them, and the protocol revisions that have sessions."""

from mcp.server.streamable_http import LAST_EVENT_ID_HEADER, MCP_SESSION_ID_HEADER
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

SESSION_HEADER = MCP_SESSION_ID_HEADER.encode("ascii")
REVISION_HEADER = MCP_PROTOCOL_VERSION_HEADER.encode("ascii")
LAST_EVENT_HEADER = LAST_EVENT_ID_HEADER.encode("ascii")

HANDSHAKE_REVISIONS = frozenset(version.encode("ascii") for version in HANDSHAKE_PROTOCOL_VERSIONS)
"""Revisions in which a client opens a session with `initialize`; a request of any other is stateless."""
