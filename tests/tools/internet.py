"""Publish pages in an internet of the tests' own, and read what arrived there (`tests.egress.private_internet`)."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.web.certificates import write_certificate


class Internet:
    """Hosts with pages, and a log of the look-ups and requests."""

    def __init__(
        self, folder: Path, names: Mapping[str, Sequence[str]], pages: Mapping[str, bytes | str] | None = None
    ) -> None:
        """`names` has the addresses of each host; each has `/page`, and `pages` are more of them, as `HOST/PATH`."""
        self.certificate = write_certificate(folder, hosts=list(names)).path
        self.before = (sys.executable, "-m", "tests.egress.private_internet", str(folder), "--")
        """The beginning of a command line of what is to be in it."""
        self._log = folder / "log"
        self._log.touch()
        (folder / "names.json").write_text(json.dumps(dict(names)))
        for name, data in ({f"{host}/page": f"page of {host}\n" for host in names} | dict(pages or {})).items():
            place = folder / "www" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data.encode() if isinstance(data, str) else data)

    def requests(self, host: str) -> list[tuple[str, str]]:
        """Return address and port of each request for a host."""
        return [(event[1], event[2]) for event in self._events("http") if event[3] == host]

    def addresses(self) -> set[str]:
        """Return every address that got a request."""
        return {event[1] for event in self._events("http")}

    def looked_up(self) -> set[str]:
        """Return every name that was looked up."""
        return {event[1] for event in self._events("dns")}

    def _events(self, kind: str) -> list[list[str]]:
        events = [line.split() for line in self._log.read_text().splitlines()]
        return [event for event in events if event[0] == kind]
