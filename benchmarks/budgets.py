"""Every row: what is measured, against what, and what it may cost at most.

A row's name starts with its group; the two figures of a row are measured in turns within one run of that group.
"""

from dataclasses import dataclass

IN_FLIGHT = 64
"""Calls at once in the rows that say so."""

BARE_ECHO = "bare SDK echo"
OWN_TRANSPORT = "bare echo, our transport"
BARE_FLOOD = f"{BARE_ECHO} x{IN_FLIGHT}"
OWN_FLOOD = f"{OWN_TRANSPORT} x{IN_FLIGHT}"
REGISTRY_ECHO = "echo of a registry"
HTTP_IN_FLIGHT = 16
MANY_SESSIONS = 500
MANY_IN_FLIGHT = 2000

FORMS = ("json", "stream")
"""Of an answer over HTTP."""

LEAST_THROUGHPUT = 0.85
"""Of the bare app's, with ours."""

LONG_LIST = "tools/list of 100"
SHORT_LIST = "tools/list of 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One ratio. `bar` is the most that it may be; `target` is where it should be; None: for information.

    `most_more` is the most that the subject may take beyond its baseline, `most` the most that it may take at all, both
    in the row's unit.
    """

    name: str
    subject: str
    baseline: str
    unit: str = "ms"
    bar: float | None = None
    target: float | None = None
    most_more: float | None = None
    most: float | None = None

    @property
    def group(self) -> str:
        """The group that measures both figures."""
        return self.name.partition("/")[0]


START = (
    Row(name="start/initialize", subject="server initialize", baseline="bare initialize", bar=1.15),
    Row(name="start/tools-list", subject="server tools/list", baseline="bare tools/list"),
    Row(name="start/memory", subject="server memory", baseline="bare memory", unit="MB"),
)


def _calls(group: str) -> tuple[Row, ...]:
    """What a call costs, in one era."""
    return (
        Row(name=f"{group}/read_file", subject="read_file", baseline=BARE_ECHO, bar=2.0, target=1.2),
        Row(name=f"{group}/read_file/own-transport", subject="read_file", baseline=OWN_TRANSPORT),
        Row(name=f"{group}/read_file/direct", subject="read_file", baseline="open, read, close"),
        Row(name=f"{group}/list_directory", subject="list_directory", baseline=BARE_ECHO),
        Row(name=f"{group}/list_directory/direct", subject="list_directory", baseline="scandir, stat"),
        Row(name=f"{group}/git_status", subject="git_status", baseline="git status process"),
        Row(name=f"{group}/git_status/clone", subject="git_status, clone", baseline="git status process, clone"),
        Row(name=f"{group}/run_command", subject="run_command true", baseline="true process"),
        Row(name=f"{group}/dispatch", subject=REGISTRY_ECHO, baseline=OWN_TRANSPORT, most_more=0.06),
        Row(name=f"{group}/tools-list", subject=LONG_LIST, baseline=SHORT_LIST, most=3.0),
        Row(name=f"{group}/in-flight", subject=f"read_file x{IN_FLIGHT}", baseline=BARE_FLOOD),
        Row(name=f"{group}/in-flight/own-transport", subject=f"read_file x{IN_FLIGHT}", baseline=OWN_FLOOD),
    )


CONFINEMENT = (
    Row(name="confinement/thread", subject="true, confined", baseline="true, spawned", bar=2.0, most_more=0.4),
    Row(name="confinement/thread/git", subject="git status, confined", baseline="git status, spawned"),
    Row(name="confinement/supervised", subject="true, supervised", baseline="true, spawned", most_more=2.5),
    Row(name="confinement/supervised/run", subject="true, supervised", baseline="true, run"),
    Row(name="confinement/supervised/end", subject="deaf tree, ended", baseline="sleep, ended", most=1500.0),
    Row(name="confinement/supervised/many", subject="200 true, supervised", baseline="200 true, run", most=2000.0),
)


NEIGHBOURS = tuple(
    Row(name=f"neighbours/{name}", subject=f"beside {name}", baseline="a call alone", bar=2.0)
    for name in ("output", "memory", "processes")
)


LESS_WORK = (
    Row(name="large/head", subject="head of 10 MB", baseline="head of 10 KB", bar=2.0),
    Row(name="large/tail", subject="tail of 10 MB", baseline="tail of 10 KB", bar=2.0),
    Row(name="large/pages", subject="10 MB by pages", baseline="5 MB by pages", bar=2.5),
    Row(name="history/git_log", subject="git_log of 50", baseline="git log process", bar=2.0),
    Row(name="search/files", subject="search_files", baseline="rg --files process", bar=2.0),
    Row(name="search/text", subject="search_text", baseline="rg process"),
)
"""What must cost as much as is asked for, not as much as is there."""


_MORE_THAN_THE_OFFICIAL = {"branches": 1.6, "diff": 1.3}
"""It shows less there: names of branches without commit, date and upstream, and a patch without checking its files."""


def _git_servers() -> tuple[Row, ...]:
    """The git tools beside one git process and beside other git servers, where those are installed."""
    rows = []
    for name in ("status", "log-50", "diff", "show", "blame", "branches", "add-commit"):
        own = f"{name} by coretools"
        most = _MORE_THAN_THE_OFFICIAL.get(name, 1.0)
        aim = None if most == 1.0 else 1.0
        rows.append(Row(name=f"git/{name}", subject=own, baseline=f"{name} by git", bar=2.5, target=1.5))
        rows.append(Row(name=f"git/{name}/git-mcp-server", subject=own, baseline=f"{name} by git-mcp-server", bar=1.0))
        if name != "blame":  # it has none
            baseline = f"{name} by mcp-server-git"
            rows.append(Row(name=f"git/{name}/mcp-server-git", subject=own, baseline=baseline, bar=most, target=aim))
    for name in ("copied-status", "copied-diff"):
        own = f"{name} by coretools"
        rows.append(Row(name=f"git/{name}", subject=own, baseline=f"{name} by git", bar=2.5, target=1.5))
        rows.append(Row(name=f"git/{name}/mcp-server-git", subject=own, baseline=f"{name} by mcp-server-git", bar=1.3))
    return tuple(rows)


GIT_SERVERS = _git_servers()


FILE_ROWS = ("read", "read-in-flight", "head", "tail", "write", "edit", "list", "glob")


def _file_servers() -> tuple[Row, ...]:
    """The file tools beside other file servers, where those are installed."""
    return tuple(
        Row(name=f"files/{row}/{name}", subject=f"{row} by coretools", baseline=f"{row} by {name}", target=1.2)
        for row in FILE_ROWS
        for name in ("server-filesystem", "desktop-commander")
        # It answers before its search has ended, and takes a minute for 64 calls.
        if name != "desktop-commander" or row not in ("glob", "read-in-flight")
    )


FILE_SERVERS = _file_servers()

TREE_ROWS = ("list", "tree", "glob", "regex")
FILE_TREES = (5_000, 100_000)
"""Files in them."""


def _file_trees() -> tuple[Row, ...]:
    """What looks at whole trees, beside other file servers, where those are installed."""
    return tuple(
        Row(
            name=f"trees/{files}/{row}/{name}",
            subject=f"{row} of {files} by coretools",
            baseline=f"{row} of {files} by {name}",
            target=1.2,
        )
        for files in FILE_TREES
        for row in TREE_ROWS
        for name in ("server-filesystem", "desktop-commander")
        if name != "server-filesystem" or row != "regex"  # it has none
    )


OF_PEERS = (*GIT_SERVERS, *FILE_SERVERS, *_file_trees())

UNDO = tuple(
    Row(name=f"undo/{row}", subject=f"{row} with undo", baseline=f"{row} without undo", most_more=most_more)
    for row, most_more in {"read": None, "write": None, "edit": None, "run-true": 5.0}.items()
)
"""What the journal costs a call."""


CLIENT = (
    Row(name="client/help", subject="coretools --help, processor", baseline="interpreter, processor", most=150.0),
    Row(name="client/call", subject="coretools mcp call", baseline="bare call", bar=1.15),
    Row(
        name="client/call/processor", subject="coretools mcp call, processor", baseline="bare call, processor", bar=1.15
    ),
)


PARTS = ("p50", "p99", "processor")
"""Of a figure over HTTP: latency, and processor time of the server, which other work hardly moves."""


def _over_http(era: str, form: str) -> tuple[Row, ...]:
    """What a call costs over HTTP in one era and one response format, with 16 in flight."""
    name, own, bare, low = f"http/{era}/{form}", f"{era} {form}", f"bare {era} {form}", f"lowlevel {era} {form}"
    rows = [Row(name=name, subject=own, baseline=bare, bar=round(1 / LEAST_THROUGHPUT, 3))]
    rows += [Row(name=f"{name}/{part}", subject=f"{own} {part}", baseline=f"{bare} {part}") for part in PARTS]
    beneath = {"lowlevel": low}
    if form == "json":
        beneath["lowlevel-echo"] = f"lowlevel echo, {own}"
    for part, baseline in beneath.items():
        rows += [
            Row(name=f"{name}/{part}", subject=own, baseline=baseline),
            Row(name=f"{name}/{part}/processor", subject=f"{own} processor", baseline=f"{baseline} processor"),
        ]
    return tuple(rows)


WAITING = (
    Row(name="waiting/directories", subject="true, many directories", baseline="true, few directories", bar=1.5),
    Row(name="waiting/at-once", subject="sleep 0.2 at once", baseline="sleep 0.2", most=3000.0),
    Row(name="waiting/beside-reads", subject="sleep 1 beside reads", baseline="sleep 1", most=1300.0),
    Row(name="waiting/beside-reads/http", subject="sleep 1 beside reads, http", baseline="sleep 1, http", most=1300.0),
)

HTTP = (
    *(row for era in ("handshake", "stateless") for form in FORMS for row in _over_http(era, form)),
    # Of the fastest of all: its client must not be what the others wait for.
    Row(
        name="http/client",
        subject="lowlevel echo, stateless json client",
        baseline="lowlevel echo, stateless json",
        bar=0.5,
    ),
)

CROWD = (
    Row(name="crowd/sessions", subject="own sessions", baseline="bare sessions"),
    Row(name="crowd/sessions/p99", subject="own sessions p99", baseline="bare sessions p99"),
    Row(name="crowd/in-flight", subject="own in flight", baseline="bare in flight"),
    Row(name="crowd/in-flight/p99", subject="own in flight p99", baseline="bare in flight p99"),
    Row(name="crowd/idle-session", subject="own idle session", baseline="bare idle session", unit="KB", most=100.0),
)

SOAKED = ("memory", "descriptors", "children", "sessions", "threads")
"""What is looked at during the soak."""

SOAK = tuple(
    Row(
        name=f"soak/{figure}",
        subject=f"{figure}, last third",
        baseline=f"{figure}, first third",
        unit="MB" if figure == "memory" else "",
        bar=1.1 if figure == "memory" else 1.25,
    )
    for figure in SOAKED
)

_TOOLS = (*_calls("handshake"), *_calls("stateless"))
ROWS = (
    *START,
    *_TOOLS,
    *CONFINEMENT,
    *LESS_WORK,
    *OF_PEERS,
    *UNDO,
    *CLIENT,
    *NEIGHBOURS,
    *WAITING,
    *HTTP,
    *CROWD,
    *SOAK,
)


def selected(text: str) -> tuple[Row, ...]:
    """The rows whose name begins with the text; where none does, those that contain it."""
    return tuple(row for row in ROWS if row.name.startswith(text)) or tuple(row for row in ROWS if text in row.name)
