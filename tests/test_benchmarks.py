"""The benchmarks run and print what they promise (docs/specs/benchmarks.md). The measured values are not tested."""

import json
import os
import socket
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from benchmarks.budgets import ROWS, SOAKED, Row, selected
from benchmarks.failure import NotMeasured
from benchmarks.http_client import Load
from benchmarks.http_load import CONFIGURATION
from benchmarks.http_soak import Soaked
from benchmarks.interleaved import Contender, Sample, measured
from benchmarks.report import Measured
from tests.checkout import TREE

GIT_CALLS = {"status", "log-50", "diff", "show", "blame", "branches", "add-commit"}

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the server's transport is POSIX only")


def benchmarks(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the benchmarks from any directory, as with an installed checkout."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(TREE), "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_smoke_run_prints_every_row_and_leaves_no_file(tmp_path: Path) -> None:
    """benchmarks-1, benchmarks-5, benchmarks-6: one line for each row; the workspace is deleted.

    `.ci/run` has a smoke run of all groups: it takes a minute, which the suite does not have.
    """
    done = benchmarks(tmp_path, "--smoke", "--only", "history/")
    assert done.returncode == 0, done.stderr
    printed = [line.split()[0] for line in done.stdout.splitlines() if line]
    rows = [row.name for row in selected("history/")]
    assert printed[1 : 1 + len(rows)] == rows
    assert {row.split("/")[0] for row in rows} >= {"history"}
    assert list(tmp_path.iterdir()) == []


def test_one_row_alone_is_measured_as_json(tmp_path: Path) -> None:
    """benchmarks-3, benchmarks-7: both figures with their spread, the ratio and the bar."""
    done = benchmarks(tmp_path, "--smoke", "--json", "--only", "start/initialize")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["name"] == "start/initialize"
    assert row["bar"] == 1.15
    assert row["ratio"] == pytest.approx(row["subject"]["median"] / row["baseline"]["median"])
    for side in ("subject", "baseline"):
        assert row[side]["min"] <= row[side]["median"] <= row[side]["max"]


def test_a_name_that_no_row_has_is_refused_with_those_there_are(tmp_path: Path) -> None:
    """benchmarks-7: nothing is measured for a misspelt name."""
    done = benchmarks(tmp_path, "--only", "reed_file")
    assert done.returncode == 1
    assert "reed_file" in done.stderr
    assert ROWS[0].name in done.stderr


def test_the_bars_of_the_project_are_in_the_rows() -> None:
    """benchmarks-4, benchmarks-11 to 14: each bar is written once; `.ci/run` runs every row.

    benchmarks-12, benchmarks-13, benchmarks-14.
    """
    bars = {row.name: (row.bar, row.target) for row in ROWS if row.bar is not None}
    assert bars == {
        "start/initialize": (1.15, None),
        "handshake/read_file": (2.0, 1.2),
        "stateless/read_file": (2.0, 1.2),
        "confinement/thread": (2.0, None),
        "large/head": (2.0, None),
        "large/tail": (2.0, None),
        "large/pages": (2.5, None),
        "history/git_log": (2.0, None),
        "search/files": (2.0, None),
        **{f"git/{name}": (2.5, 1.5) for name in GIT_CALLS},
        **{f"git/{name}/git-mcp-server": (1.0, None) for name in GIT_CALLS},
        **{f"git/{name}/mcp-server-git": (1.0, None) for name in GIT_CALLS - {"blame", "branches", "diff"}},
        "git/branches/mcp-server-git": (1.6, 1.0),
        "git/diff/mcp-server-git": (1.3, 1.0),
        **{f"git/copied-{name}": (2.5, 1.5) for name in ("status", "diff")},
        **{f"git/copied-{name}/mcp-server-git": (1.3, None) for name in ("status", "diff")},
        "client/call": (1.15, None),
        "client/call/processor": (1.15, None),
        **{f"http/{era}/{form}": (1.176, None) for era in ("handshake", "stateless") for form in ("json", "stream")},
        "http/client": (0.5, None),
        **{f"neighbours/{name}": (2.0, None) for name in ("output", "memory", "processes")},
        "waiting/directories": (1.5, None),
        "soak/memory": (1.1, None),
        **{f"soak/{figure}": (1.25, None) for figure in ("descriptors", "children", "sessions", "threads")},
    }
    assert {row.name: row.most_more for row in ROWS if row.most_more is not None} == {
        "confinement/thread": 0.4,
        "confinement/supervised": 2.5,
        "undo/run-true": 5.0,
        "handshake/dispatch": 0.06,
        "stateless/dispatch": 0.06,
    }
    assert {row.name: row.most for row in ROWS if row.most is not None} == {
        "handshake/tools-list": 3.0,
        "stateless/tools-list": 3.0,
        "client/help": 150.0,
        "crowd/idle-session": 100.0,
        "confinement/supervised/end": 1500.0,
        "confinement/supervised/many": 2000.0,
        "waiting/at-once": 3000.0,
        "waiting/beside-reads": 1300.0,
        "waiting/beside-reads/http": 1300.0,
    }
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert selected("") == ROWS


@pytest.mark.parametrize(
    ("row", "subject", "is_met"),
    [
        (Row(name="g/a", subject="s", baseline="b", bar=2.0), 3.0, True),
        (Row(name="g/a", subject="s", baseline="b", bar=2.0), 5.0, False),
        (Row(name="g/a", subject="s", baseline="b", most_more=1.5), 3.0, True),
        (Row(name="g/a", subject="s", baseline="b", most_more=0.5), 3.0, False),
        (Row(name="g/a", subject="s", baseline="b", most=3.0), 3.0, True),
        (Row(name="g/a", subject="s", baseline="b", bar=9.0, most=2.9), 3.0, False),
        (Row(name="g/a", subject="s", baseline="b"), 3.0, None),
    ],
)
def test_every_bar_of_a_row_must_hold(row: Row, subject: float, is_met: bool | None) -> None:
    """benchmarks-4: ratio, difference and absolute figure; a single turn, or a row without a bar, proves nothing."""
    many, one = Sample((subject, subject)), Sample((subject,))
    assert Measured(row, many, Sample((2.0, 2.0))).meets_bar is is_met
    assert Measured(row, one, Sample((2.0,))).meets_bar is None


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        ([b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"], [{}]),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r", b"\n", b"{", b"}"], [{}]),
        (
            [
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
                b'e\r\ndata: {"a":1}\n\r\n',
                b'e\r\ndata: {"a":2}\n\r\n0\r',
                b"\n\r\n",
            ],
            [{"a": 1}, {"a": 2}],
        ),
        ([b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"], []),
    ],
    ids=["whole", "in pieces", "chunked", "empty"],
)
def test_the_client_of_the_load_knows_where_an_answer_ends(received: list[bytes], expected: list[object]) -> None:
    """benchmarks-8: answers in pieces, in chunks and without a body."""
    with socket.create_server(("127.0.0.1", 0)) as accepting, closing(Load(accepting.getsockname(), 2)) as load:
        ends = [accepting.accept()[0] for _ in range(2)]

        def answer(end: socket.socket) -> None:
            for _ in range(2):
                end.recv(100)
                for part in received:
                    end.sendall(part)

        threads = [Thread(target=answer, args=(end,)) for end in ends]
        for thread in threads:
            thread.start()
        answers = load.run([b"one", b"two", b"three", b"four"])
        for thread, end in zip(threads, ends, strict=True):
            thread.join()
            end.close()
    assert [one.messages() for one in answers] == [expected] * 4
    assert load.own_seconds > 0


@pytest.mark.parametrize("received", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"], ids=["none", "half"])
def test_an_answer_that_is_lost_ends_the_run(received: bytes) -> None:
    """benchmarks-8: a connection that is closed before its answer is complete."""
    with socket.create_server(("127.0.0.1", 0)) as accepting, closing(Load(accepting.getsockname(), 1)) as load:
        end, _ = accepting.accept()
        end.sendall(received)
        end.shutdown(socket.SHUT_WR)
        with pytest.raises(NotMeasured, match="closed"):
            load.run([b"one"])
        end.close()


def test_only_the_limits_of_one_principal_are_raised_on_our_server() -> None:
    """benchmarks-9: all else has its default: validation, log, metrics, events. Its callers have no token."""
    assert tomllib.loads(CONFIGURATION) == {
        "auth": {"anonymous": "user"},
        "limits": {"sessions": 8192, "sessions_per_principal": 8192, "connections": 4096, "session_idle_seconds": 3600},
        "roles": {"default": {"requests_per_second": 0, "concurrent": 4096}},
    }


def test_the_soak_compares_the_last_third_with_the_first() -> None:
    """benchmarks-10: growth is visible."""
    looks = [dict.fromkeys(SOAKED, float(number)) for number in range(9)]
    thirds = Soaked(samples=looks).thirds()
    assert thirds["memory, first third"].values == (0.0, 1.0, 2.0)
    assert thirds["memory, last third"].values == (6.0, 7.0, 8.0)
    (row,) = [row for row in ROWS if row.name == "soak/memory"]
    assert Measured(row, thirds[row.subject], thirds[row.baseline]).meets_bar is False


def test_contenders_are_measured_in_turns_after_a_warm_up() -> None:
    """benchmarks-2: A B A B; a turn of several measurements counts as their median."""
    calls: list[str] = []
    values = iter(range(100))

    def once(name: str) -> tuple[float, ...]:
        calls.append(name)
        return (float(next(values)),)

    contenders = [
        Contender(figures=("a",), once=lambda: once("a"), repeat=3),
        Contender(figures=("b",), once=lambda: once("b")),
    ]
    found = measured(contenders, rounds=2, is_smoke=False)
    assert "".join(calls) == "aaab" * 3
    assert found["a"].values == (5.0, 9.0)
    assert found["b"].values == (7.0, 11.0)
