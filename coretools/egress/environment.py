"""Environment variables by which programs find the proxy. Pure.

Which program honours which variable was tried one by one: docs/specs/network.md.
"""

PORT = 1023
"""Port of the listener, on loopback of the commands' network namespace. Commands can't bind one below 1024, so it is
always free, and none of them can take its place."""

_DIRECT = ("localhost", "127.0.0.1", "::1")
"""Reached within the namespace."""


def proxy_variables() -> dict[str, str]:
    """Return the variables for commands; `JAVA_TOOL_OPTIONS` comes from `java_options`."""
    url = f"http://127.0.0.1:{PORT}"
    direct = ",".join(_DIRECT)
    # curl reads http_proxy in lower case only; others upper case only. ALL_PROXY with a SOCKS URL would break httpx
    # without socksio, so it has the same value.
    names = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    return {
        **dict.fromkeys(names, url),
        "no_proxy": direct,
        "NO_PROXY": direct,
        "NODE_USE_ENV_PROXY": "1",  # fetch and https of Node, from 24 (and 22.21) on
        # These take precedence over configuration files, which may name a proxy that can't be reached from here.
        "npm_config_proxy": url,
        "npm_config_https_proxy": url,
        "npm_config_noproxy": direct,
        "YARN_HTTP_PROXY": url,
        "YARN_HTTPS_PROXY": url,
        "CARGO_HTTP_PROXY": url,
    }


def java_options() -> list[str]:
    """Return the system properties that every Java program needs, Maven and Gradle included."""
    options = [f"-D{kind}.proxy{what}" for kind in ("http", "https") for what in ("Host=127.0.0.1", f"Port={PORT}")]
    return [*options, "-Dhttp.nonProxyHosts=localhost|127.*|[::1]"]
