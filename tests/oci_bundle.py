"""The image as a container engine starts it, without a daemon: an OCI bundle from compose.yaml and an unpacked image.

    python -m tests.oci_bundle BUNDLE [NAME=VALUE ...]

`BUNDLE/rootfs` contains the image's files. Writes `BUNDLE/config.json` for `runc run --bundle BUNDLE NAME`, as Docker
does for the service `http`: entry point, variables, user, mounts, limits and capabilities of the compose file, masked
paths, and Docker's default seccomp profile (`tests.docker_profile`). NAME=VALUE is a line of `.env`. The container
shares the network of the caller, because the engine publishes ports.

    buildah bud --isolation chroot --build-arg BASE=IMAGE -t coretools-http . && c=$(buildah from coretools-http)
    cp -a "$(buildah mount "$c")" BUNDLE/rootfs

IMAGE is any with Debian's packages and CPython: `debootstrap --variant=minbase trixie` with a Python in /usr/local.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.docker_profile import ABSENT, FAMILIES, NAMESPACES, PERSONALITIES, REFUSED
from tests.image import COMPOSE, compose, environment_of, filled, last

SERVICE = "http"
UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

MASKED = (
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/scsi",
    "/sys/firmware",
)
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""Paths that Docker masks or makes read-only."""


def main() -> None:
    """Write the bundle's configuration."""
    bundle, *pairs = sys.argv[1:]
    given = dict(pair.split("=", 1) for pair in pairs)
    Path(bundle, "config.json").write_text(json.dumps(config(given), indent=1))


def config(given: Mapping[str, str]) -> dict[str, Any]:
    """The configuration of the runtime."""
    service = compose(given)["services"][SERVICE]
    uid, gid = (int(number) for number in service["user"].split(":"))
    variables = {name: filled(value) for name, value in environment_of(SERVICE).items()}
    variables |= {name: str(value) for name, value in service["environment"].items()}
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    return {
        "ociVersion": "1.0.2",
        "hostname": SERVICE,
        "root": {"path": "rootfs", "readonly": service["read_only"]},
        "process": {
            "terminal": False,
            "user": {"uid": uid, "gid": gid},
            "args": list(last(SERVICE, "ENTRYPOINT").value),
            "env": [f"{name}={value}" for name, value in variables.items()],
            "cwd": last(SERVICE, "WORKDIR").value[0],
            "capabilities": {},
            "noNewPrivileges": True,
        },
        "mounts": [*_system(service["shm_size"]), *map(_tmpfs, service["tmpfs"]), *map(_volume, service["volumes"])],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
            "maskedPaths": list(MASKED),
            "readonlyPaths": list(READ_ONLY),
            "seccomp": _seccomp(),
            "resources": {
                "memory": {"limit": _bytes(service["mem_limit"])},
                "pids": {"limit": service["pids_limit"]},
                "cpu": {"quota": int(service["cpus"] * 100_000), "period": 100_000},
            },
        },
    }


def _system(shm_size: str) -> list[dict[str, Any]]:
    safe = ["nosuid", "noexec", "nodev"]
    return [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": safe},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance", "ptmxmode=0666"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*safe, f"size={shm_size}"]},
        {"destination": "/sys", "type": "none", "source": "/sys", "options": ["rbind", "ro"]},
        *(
            {"destination": path, "type": "bind", "source": path, "options": ["bind", "ro"]}
            for path in ("/etc/resolv.conf", "/etc/hosts")
        ),
    ]


def _tmpfs(text: str) -> dict[str, Any]:
    path, _, options = text.partition(":")
    return {
        "destination": path,
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["nosuid", "nodev", *options.split(",")],
    }


def _volume(volume: Mapping[str, Any]) -> dict[str, Any]:
    source = str((COMPOSE.parent / volume["source"]).resolve())
    rights = "ro" if volume.get("read_only") else "rw"
    return {"destination": volume["target"], "type": "bind", "source": source, "options": ["rbind", rights]}


def _bytes(text: str) -> int:
    return int(text[:-1]) * UNITS[text[-1]]


def _seccomp() -> dict[str, Any]:
    def refused(names: list[str], number: int, *arguments: dict[str, Any]) -> dict[str, Any]:
        return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": number, "args": list(arguments)}

    def equal(value: int) -> dict[str, Any]:
        return {"index": 0, "value": value, "op": "SCMP_CMP_EQ"}

    flags = [1 << bit for bit in range(32) if NAMESPACES >> bit & 1]
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": [
            refused(sorted(REFUSED), 1),
            refused(sorted(ABSENT), 38),
            *(
                refused(["clone"], 1, {"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"})
                for flag in flags
            ),
            *(refused(["socket"], 1, equal(family)) for family in range(64) if family not in FAMILIES),
            refused(["personality"], 1, *({"index": 0, "value": one, "op": "SCMP_CMP_NE"} for one in PERSONALITIES)),
        ],
    }


if __name__ == "__main__":
    main()
