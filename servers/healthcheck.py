"""The health check of the container: asks the HTTP server on this machine whether it is alive.

    python -P -m servers.healthcheck

Finds the server by the same file and variables as the server does (CORETOOLS_HTTP_*), and knows nothing of its flags.
Ends with 0 when `/healthz` says so, and with 1 and a sentence on standard error when not.
"""

import http.client
import ipaddress
import os
import ssl
import sys
from collections.abc import Mapping

from coretools.errors import BadSetting
from coretools.web.common.config import ServerSection, read_config

PATH = "/healthz"

ANSWER_SECONDS = 4.0
"""Below the timeout of the image's HEALTHCHECK, so that the reason is said before the check is ended."""


def main() -> None:
    """Entry point: exits with 0 or with the reason."""
    fault = fault_of(os.environ)
    if fault:
        sys.exit(f"coretools-http: {fault}")


def fault_of(environment: Mapping[str, str]) -> str:
    """Why the server of this configuration is not well; empty when it is."""
    try:
        server = read_config(None, environment, {}).server
    except BadSetting as error:
        return str(error)
    connection = _connection(server)
    try:
        connection.request("GET", PATH, headers={"Host": _name_of(server)})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"no answer at {connection.host} port {connection.port}: {error}"
    finally:
        connection.close()
    return "" if status == http.client.OK else f"{PATH} was answered with {status}"


def _connection(server: ServerSection) -> http.client.HTTPConnection:
    host = _reachable(server.host)
    if not server.tls_certificate:
        return http.client.HTTPConnection(host, server.port, timeout=ANSWER_SECONDS)
    # Its certificate is for the name outside, which means nothing on this machine, and nothing secret is sent.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, server.port, timeout=ANSWER_SECONDS, context=context)


def _reachable(host: str) -> str:
    """An address to call a server at which listens on all of them."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


def _name_of(server: ServerSection) -> str:
    """A Host header that the server takes: one of its own names, or without any that of loopback."""
    name = server.hosts[0] if server.hosts else f"localhost:{server.port}"
    return f"{name[:-1]}{server.port}" if name.endswith(":*") else name


if __name__ == "__main__":
    main()
