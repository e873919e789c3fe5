"""Network by host name: a proxy on the event loop that admits only the hosts that the operator lists."""
