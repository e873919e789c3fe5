"""Started by the official suite as the client: hands the scenario to the test, which runs it with our client.

A process for each of 70 scenarios would load our client 70 times. This one loads nothing.
"""

import json
import os
import socket
import sys

if __name__ == "__main__":
    address, url = sys.argv[1:]
    scenario = {
        "url": url,
        "name": os.environ["MCP_CONFORMANCE_SCENARIO"],
        "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
    }
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(address)
        peer.sendall(json.dumps(scenario).encode() + b"\n")
        peer.shutdown(socket.SHUT_WR)
        answer = json.loads(b"".join(iter(lambda: peer.recv(65536), b"")))
    print(answer["text"], file=sys.stderr)
    sys.exit(answer["code"])
