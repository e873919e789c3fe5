"""Health check of the container: requests `/healthz` from the HTTP server on this machine.

    python -P -m coretools.servers.healthcheck

Finds the server by the same file and variables as the server itself (CORETOOLS_HTTP_*); flags are not known here.
Exits with 0 if `/healthz` answers 200, else with 1 and a sentence on standard error.
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
"""Below the timeout of the image's HEALTHCHECK, so that the reason is printed before the check is killed."""


def main() -> None:
    """Entry point: exit with 0, or with the reason."""
    fault = fault_of(os.environ)
    if fault:
        sys.exit(f"coretools-http: {fault}")


def fault_of(environment: Mapping[str, str]) -> str:
    """Return why the server of this configuration is unhealthy; empty if it is healthy."""
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
    # Not verified: the certificate is for the public name, and nothing secret is sent.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, server.port, timeout=ANSWER_SECONDS, context=context)


def _reachable(host: str) -> str:
    """Return an address at which a server on this host is reachable; loopback if it listens on all addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"


def _name_of(server: ServerSection) -> str:
    """Return a Host header that the server accepts: one of its names, or `localhost` if it has none."""
    name = server.hosts[0] if server.hosts else f"localhost:{server.port}"
    return f"{name[:-1]}{server.port}" if name.endswith(":*") else name


if __name__ == "__main__":
    main()
