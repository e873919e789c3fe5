"""Connections and the descriptors there are for them (docs/specs/guard.md), in processes with limits of their own."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
soft, hard, connections = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from coretools.serving.web.descriptors import places_for
print(places_for(connections), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "places", "now"),
    [
        (256, 8192, 2048, 3072),
        (4096, 8192, 2048, 4096),
        (256, 2500, 1476, 2500),
        (256, 1024, 512, 1024),
        (64, 64, 32, 64),
    ],
)
def test_connections_leave_descriptors_for_calls(soft: int, hard: int, places: int, now: int) -> None:
    """guard-4: the soft limit is raised where it can be; otherwise there are fewer places."""
    words = (str(soft), str(hard), "2048")
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(places), str(now)]
    assert ("limits.connections" in done.stderr) == (places < 2048)
