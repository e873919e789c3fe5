"""What a shell line must not reach, by effect, in both tiers; bash has ways of its own (/dev/tcp, loadable builtins).

shell-13, confinement-1: a line runs in the sandbox of any command.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docker_profile import under_profile
from tests.protocol.peer import Peer, marker, peer, wait_until_none

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")

SECRET = "the-canary-of-the-outside"

READS = """
cat $OUT/secret
x=$(<$OUT/secret); echo "$x"
while read -r l; do echo "$l"; done < $OUT/secret
mapfile -t a < $OUT/secret; echo "${a[@]}"
exec 9<$OUT/secret; cat <&9
cat < <(cat $OUT/secret)
. $OUT/secret
source $OUT/secret 2>&1
bash $OUT/secret
echo $OUT/*; compgen -f $OUT/
for f in $OUT/*; do echo "$f"; done; [[ -e $OUT/secret ]] && head -c 99 $OUT/secret
ln -s $OUT/secret link && cat link; rm -f link
ln $OUT/secret hard && cat hard; rm -f hard
cd $OUT && cat secret; pushd $OUT; cat secret
cat /proc/$VICTIM/environ | tr '\\0' '\\n'
cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; cat /proc/*/cwd/secret /proc/*/root$OUT/secret
declare -p; env; cat /proc/$PPID/environ; set
tail -c +1 /proc/self/fd/* /proc/$PPID/fd/* /proc/$PPID/mem | grep -a canary
cp $OUT/secret . ; tar cf - $OUT | cat; dd if=$OUT/secret
read -r x < $OUT/secret; printf '%s' "$x" > /dev/stderr
coproc { cat $OUT/secret; }; cat <&"${COPROC[0]}"
trap 'cat $OUT/secret' EXIT DEBUG
history -r $OUT/secret; history; HISTFILE=$OUT/secret; set -o history; fc -l
"""

CHANGES = """
echo x > $OUT/made; echo x >> $OUT/kept; : > $OUT/kept
exec 3>>$OUT/kept; echo x >&3
exec 3<>$OUT/made; echo x | tee $OUT/made $OUT/kept
rm -rf $OUT; mv $OUT /tmp/moved; mv $OUT/kept .; rmdir $OUT/dir
ln -s $OUT/kept link; echo x > link; sed -i s/k/x/ link $OUT/kept; rm -f link
set -C; echo x >| $OUT/kept; printf -v x y; mkdir $OUT/dir2; mkfifo $OUT/pipe; umask 0; truncate -s 0 $OUT/kept
(echo x > $OUT/made) & wait; nohup sh -c 'echo x > $OUT/made' > /dev/null 2>&1; disown
trap 'echo x > $OUT/made' EXIT; exit 3
mount --bind . $OUT; unshare -Urm mount -t tmpfs none $OUT; chroot / sh -c 'echo x > $OUT/made'; umount $OUT
HISTFILE=$OUT/made; set -o history; history -w; history -a
kill -9 $VICTIM; kill -TERM -$VICTIM; pkill -9 -f $MARK-victim
"""

ATTRIBUTES = """
chmod 777 $OUT $OUT/kept; chown 1 $OUT/kept
touch -d 2001-01-01 $OUT/kept; setfattr -n user.x -v y $OUT/kept
"""
"""Landlock has no right for these; only the view of tier full is read-only for them."""

CONNECTS = """
exec 3<>/dev/tcp/127.0.0.1/$PORT; echo x >&3
echo x > /dev/tcp/localhost/$PORT
echo x > /dev/udp/127.0.0.1/$UDP
(exec 3<>/dev/tcp/127.0.0.1/$PORT) & wait; cat < /dev/tcp/0.0.0.0/$PORT
curl -s http://127.0.0.1:$PORT; python3 -c "import socket; socket.create_connection(('127.0.0.1', $PORT))"
python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('$OUT/socket')"; nc -U $OUT/socket < /dev/null
python3 -c "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', $UDP))"
python3 -c "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0$MARK')"
"""

LEAVES = """
sleep 7777 & disown; setsid sleep 7777 & exit 0
nohup setsid sh -c 'sleep 7777 & sleep 7777' > /dev/null 2>&1 & (sleep 7777 &)
trap '' TERM INT HUP; (trap '' TERM; exec -a bash sleep 7777) & coproc sleep 7777; exec 3> >(sleep 7777)
f() { sleep 0.01; f & }; f & sleep 0.2
"""


class Outside:
    """Everything that a command must not reach."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory, self.mark = directory, marker()
        (directory / "dir").mkdir(parents=True)
        (directory / "secret").write_text(f"echo {SECRET}\n")
        (directory / "kept").write_text("kept\n")
        self.tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.unix, self.abstract = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        self.unix.bind(str(directory / "socket"))
        self.abstract.bind(f"\0{self.mark}")
        self.udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.udp.bind(("127.0.0.1", 0))
        for listener in (self.unix, self.abstract):
            listener.listen()
        for waiting in (self.tcp, self.unix, self.abstract, self.udp):
            waiting.setblocking(False)
        command = ["sh", "-c", f": {self.mark}-victim; exec cat"]
        self.victim = subprocess.Popen(command, stdin=subprocess.PIPE, env={"SECRET": SECRET, "PATH": os.defpath})
        stack.callback(self.victim.communicate)
        self.before = self.state()

    def variables(self) -> dict[str, str]:
        return {
            "OUT": str(self.directory),
            "VICTIM": str(self.victim.pid),
            "MARK": self.mark,
            "PORT": str(self.tcp.getsockname()[1]),
            "UDP": str(self.udp.getsockname()[1]),
        }

    def state(self) -> list[tuple[object, ...]]:
        paths = [self.directory, *sorted(self.directory.rglob("*"))]
        facts = [(path, path.lstat()) for path in paths]
        kept = (self.directory / "kept").read_bytes()
        return [(path, at.st_mode, at.st_uid, at.st_mtime_ns, at.st_size, kept) for path, at in facts]

    def was_connected(self) -> bool:
        for listener in (self.tcp, self.unix, self.abstract):
            try:
                listener.accept()[0].close()
            except BlockingIOError:
                continue
            return True
        try:
            return bool(self.udp.recv(9))
        except BlockingIOError:
            return False

    def require_untouched(self, line: str) -> None:
        assert self.state() == self.before, line
        assert self.victim.poll() is None, line
        assert not self.was_connected(), line


@pytest.fixture(scope="module", params=["full", "landlock"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Peer, Outside, str]]:
    root = tmp_path_factory.mktemp("root")
    before = under_profile() if request.param == "landlock" else ()
    with ExitStack() as stack:
        outside = Outside(tmp_path_factory.mktemp("outside") / "home", stack)
        state = str(tmp_path_factory.mktemp("state"))  # the journal of the server's own
        variables = {"SECRET": SECRET, "HOME": str(outside.directory), "XDG_STATE_HOME": state}
        client = stack.enter_context(peer(root, before=before, environment=variables))
        client.start_session()
        diagnostics = client.call("get_diagnostics")["content"][0]["text"]
        if f"commands are confined in tier: {request.param}" not in diagnostics:
            pytest.skip(f"tier {request.param} is not available here")
        yield client, outside, request.param


def run(client: Peer, outside: Outside, line: str) -> str:
    for name, value in outside.variables().items():
        line = line.replace(f"${name}", value)
    result = client.call("run_command", command=line, timeout_seconds=4, stdin="")
    return str(result["content"][0]["text"])


@pytest.mark.parametrize("lines", [READS, CHANGES, CONNECTS], ids=["reads", "changes", "connects"])
def test_a_line_reaches_nothing_outside(world: tuple[Peer, Outside, str], lines: str) -> None:
    """shell-13: no secret is printed, nothing is changed, connected to or killed."""
    client, outside, tier = world
    more = ATTRIBUTES if lines is CHANGES and tier == "full" else ""
    for line in (lines + more).split("\n"):
        assert SECRET not in run(client, outside, line), line
        outside.require_untouched(line)
    assert "still here" in run(client, outside, "echo still here | cat")


def test_a_line_leaves_no_process(world: tuple[Peer, Outside, str]) -> None:
    """shell-13, confinement-1: however it detached itself."""
    client, outside, _ = world
    for line in LEAVES.strip().split("\n"):
        run(client, outside, f": {outside.mark}-left; {line}")
        run(client, outside, f"exec -a {outside.mark}-left sleep 0.01 & {line}")
        assert wait_until_none(f"{outside.mark}-left") == [], line
        assert wait_until_none("sleep\0" + "7777") == [], line


def test_a_line_loads_no_builtin_from_a_file_outside(world: tuple[Peer, Outside, str]) -> None:
    """shell-13: `enable -f` opens a library as any program opens a file."""
    client, outside, _ = world
    assert "cannot open shared object" in run(client, outside, "enable -f $OUT/secret secret && secret")
