"""A root directory for one program, as in a container: the content of an image, read-only, and nothing else.

It is made of the machine's own programs and of this Python with its packages, in mount and process namespaces, by
util-linux. The program runs as the image's user, with its variables, under Docker's default profile
(`tests.docker_profile`). Needs root; nothing remains when it ends.

The checkout or the packages may be beneath `/work` or `/tmp`, so these two are mounted first.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.checkout import TREE
from tests.docker_profile import is_supported

PROGRAMS = ("unshare", "mount", "chroot", "tini", "git", "env")

SPACES = ("--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")

SCRIPT = """
root=$1 packages=$2 work=$3 secrets=$4; shift 4
mount -t tmpfs -o mode=0755 fresh "$root"
mkdir -m 1777 "$root/tmp"; mount -t tmpfs -o "nosuid,nodev,$TMP_OPTIONS" tmp "$root/tmp"
mkdir "$root/work"; mount --bind "$work" "$root/work"
show() { mkdir -p "$root$1"; mount --rbind "$1" "$root$1"; mount -o remount,bind,ro "$root$1"; }
for path in /usr $SHOWN; do show "$path"; done
for path in bin sbin lib lib32 lib64 libx32; do [ ! -L /$path ] || cp -P /$path "$root/$path"; done
mkdir -p "$root/etc" "$root/home/coretools" "$root/opt" "$root/run/secrets/coretools"
cp -P /etc/ld.so.cache /etc/ld.so.conf "$root/etc/"
cp -aP /etc/alternatives "$root/etc/"
printf 'root:x:0:0::/root:/bin/sh\\ncoretools:x:10001:10001::/home/coretools:/bin/sh\\n' >"$root/etc/passwd"
printf 'root:x:0:\\ncoretools:x:10001:\\n' >"$root/etc/group"
[ -e "$root/opt/coretools" ] || ln -s "$packages" "$root/opt/coretools"
mkdir -m 0555 "$root/proc"; mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mkdir "$root/dev"; mount -t tmpfs -o mode=0755 dev "$root/dev"
for name in null zero full random urandom tty; do : >"$root/dev/$name"; mount --bind /dev/$name "$root/dev/$name"; done
mkdir -m 1777 "$root/dev/shm"
mount --bind -o ro "$secrets" "$root/run/secrets/coretools"
[ -z "$CONFIG" ] || { mkdir "$root/run/config"; mount --bind -o ro "$CONFIG" "$root/run/config"; }
mkdir -m 1777 "$root/run/coretools"
[ -z "$CONFIG" ] || mount -t tmpfs -o "nosuid,nodev,$TMP_OPTIONS" own "$root/run/coretools"  # as compose has it
mount -o remount,ro "$root"
cd "$TREE"
exec chroot "$root" /usr/bin/env -C "$TREE" "$PYTHON" -m tests.docker_profile --user "$RUNS_AS" -- "$@"
"""


def missing() -> str:
    """The reason why no program can run this way here; empty if one can."""
    if os.geteuid() != 0:
        return "mount namespaces need root here"
    if not is_supported():
        return "no table of system calls for this platform"
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    probe = ["unshare", *SPACES, "mount", "-t", "tmpfs", "probe", "/mnt"]
    done = subprocess.run(probe, capture_output=True, text=True, timeout=60)
    return f"no namespaces and mounts here: {done.stderr.strip()}" if done.returncode else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """The directories that a container is started with."""

    at: Path
    """An empty directory for its root."""
    work: Path
    secrets: Path
    """Read-only."""
    config: Path | None = None
    """Read-only, at /run/config."""
    tmp_options: str = "mode=1777"
    user: int = 10001


def words_for(
    argv: Sequence[str], environment: Mapping[str, str], mounted: Mounted, *, directory: str
) -> tuple[list[str], dict[str, str]]:
    """The command line that runs another one in a new root, and the variables that it needs."""
    packages = Path(sys.prefix).resolve()
    needed = {TREE, packages, Path(sys.base_prefix).resolve()}
    outermost = [path for path in needed if not any(path != one and path.is_relative_to(one) for one in needed)]
    # Mounted read-only, perhaps beneath /work, where a container has nothing of the server.
    trusted = ",".join(map(str, outermost))
    words = [f"{name}={value}" for name, value in {**environment, "CORETOOLS_TRUST": trusted}.items()]
    inside = ["/usr/bin/env", "-i", "-C", directory, *words, *argv]
    script = [
        *("sh", "-eu", "-c", SCRIPT, "fresh_root"),
        *map(str, (mounted.at, packages, mounted.work, mounted.secrets)),
    ]
    outside = {
        "PATH": os.environ["PATH"],
        "SHOWN": " ".join(str(path) for path in outermost if not path.is_relative_to("/usr")),
        "TREE": str(TREE),
        "PYTHON": sys.executable,
        "CONFIG": str(mounted.config or ""),
        "TMP_OPTIONS": mounted.tmp_options,
        "RUNS_AS": str(mounted.user),
    }
    return ["unshare", *SPACES, *script, *inside], outside
