"""Links that add a server to a client when somebody clicks them. Pure."""

import base64
import json
from urllib.parse import quote, urlencode

from coretools.client.installation.clients import Client, Server
from coretools.errors import Unsupported


def install_link(client: Client, server: Server, name: str) -> str:
    """Return the link that adds a server.

    Raises:
        Unsupported: the client has no such links. BadSetting: it can't have such a server.
    """
    entry = client.entry(server, name)
    if client.name == "cursor":
        config = base64.b64encode(_json(entry).encode()).decode("ascii")
        return f"cursor://anysphere.cursor-deeplink/mcp/install?{urlencode({'name': name, 'config': config})}"
    if client.name == "vscode":
        inputs = client.inputs(server)
        described = {"name": name, **entry, **({"inputs": inputs} if inputs else {})}
        return f"vscode:mcp/install?{quote(_json(described), safe='')}"
    raise Unsupported(f"{client.title} has no links that add a server; cursor and vscode have")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
