"""Parameters that git tools share, and those of `git_log`: type, description, and the names that others use."""

from typing import Annotated

from pydantic import Field

from coretools.operations.completion import Completes
from coretools.operations.declare import Aliases

Branch = Annotated[str, Completes("branches")]
Paths = Annotated[list[str], Aliases("files", hints=("path", "file_path"))]
Repository = Annotated[
    str,
    Field(
        description="directory of the repository, or one in it; needed when the root holds several and no path of the"
        " call tells which; other paths stay relative to the root"
    ),
    Aliases("repo_path", "repo", "repository_path", "cwd", "workdir", "directory", "working_directory"),
]

LogRevision = Annotated[
    Branch,
    Field(description="branch, tag, commit, or range a..b (commits of b that a lacks) to list; HEAD by default"),
    Aliases("rev", "ref", "branch"),
]
LogPath = Annotated[
    str,
    Field(description="only commits that changed this file or something in this directory"),
    Aliases("file_path", "file"),
]
LogLimit = Annotated[int, Field(ge=1, le=200, description="number of commits at most"), Aliases("max_count", "n")]
AuthorText = Annotated[
    str, Field(description="only commits of authors with this text in name or address"), Aliases("author")
]
Since = Annotated[
    str, Field(description="only commits from this date on: 2026-11-01, or '2 weeks ago'"), Aliases("after")
]
Until = Annotated[str, Field(description="only commits up to this date, the day included"), Aliases("before")]
MessageText = Annotated[
    str, Field(description="only commits with this text in the message"), Aliases("message", "query")
]
ChangedText = Annotated[str, Field(description="only commits that added or removed this text"), Aliases("pickaxe")]
InLines = Annotated[
    bool,
    Field(
        description="with changed: count every changed line with the text (git log -G), not only where its number"
        " differs (-S)"
    ),
]
AllBranches = Annotated[
    bool,
    Field(description="start from all branches and tags, remote ones too, instead of from one revision"),
    Aliases("all"),
]
Follow = Annotated[
    bool, Field(description="with the path of one file: go on under its former name before it was renamed")
]
