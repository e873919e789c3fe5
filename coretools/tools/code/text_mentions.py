"""Find the files and lines that contain a name as text: what is known without a language server."""

import re

from coretools.config.limits import Limits
from coretools.errors import CannotStart
from coretools.roots.root import RootedPath
from coretools.roots.root_set import Roots
from coretools.tools.search.engines import SearchEngine
from coretools.tools.search.findings import Findings, Query
from coretools.tools.search.globs import glob_matcher
from coretools.tools.search.pattern import parse_pattern
from coretools.tools.search.results import Output


class TextMentions:
    """Searches for a name in the files of a tree."""

    def __init__(self, roots: Roots, limits: Limits, engines: tuple[SearchEngine, ...]) -> None:
        """`engines` are tried in order."""
        self._roots = roots
        self._limits = limits
        self._engines = engines

    async def find(
        self, name: str, top: RootedPath, *, output: Output, deadline: float, include_ignored: bool = False
    ) -> Findings:
        """Return what contains the name as a whole word. `deadline` is one of the monotonic clock.

        Raises:
            CannotStart: no engine works here.
        """
        query = Query(
            top=top,
            pattern=parse_pattern(
                rf"\b{re.escape(name)}" + (r"\b" if name[-1:].isalnum() else ""), literal=False, ignore_case=False
            ),
            glob="*",
            wanted=glob_matcher("*"),
            context=0,
            output=output,
            limit=self._limits.search_results,
            include_ignored=include_ignored,
            deadline=deadline,
        )
        for engine in self._engines:
            findings = Findings(self._roots, self._limits, query)
            if await engine.search(findings):
                return findings
        raise CannotStart("no engine for text searches works here")
