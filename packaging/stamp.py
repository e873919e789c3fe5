"""Write the files of a release that name its version and hashes.

    python packaging/stamp.py bundle VERSION DIRECTORY     the files of the MCPB bundle, for `mcpb pack`
    python packaging/stamp.py listings VERSION DIRECTORY   server.json and the Homebrew formula, of what lies there

In the repository these files have the version 0.0.0.
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
UNSTAMPED = "0.0.0"
NAME = "coretools-workstation"


def bundle(version: str, directory: Path) -> None:
    """Copy the files of the bundle, with the version."""
    shutil.copytree(HERE / "mcpb", directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", ".venv"))
    for name in ("manifest.json", "pyproject.toml"):
        file = directory / name
        file.write_text(file.read_text().replace(UNSTAMPED, version))


def listings(version: str, directory: Path) -> None:
    """Write the listings beside the wheel, the requirements and the bundle that they name by hash."""
    listing = json.loads((HERE.parent / "server.json").read_text().replace(UNSTAMPED, version))
    packed = directory / f"{NAME}-{version}.mcpb"
    if packed.exists():
        listing["packages"].append(
            {
                "registryType": "mcpb",
                "identifier": f"{listing['repository']['url']}/releases/download/v{version}/{packed.name}",
                "fileSha256": _sha256(packed),
                "transport": {"type": "stdio"},
            }
        )
    (directory / "server.json").write_text(json.dumps(listing, indent=2) + "\n")
    formula = (HERE / "homebrew" / f"{NAME}.rb").read_text().replace(UNSTAMPED, version)
    wheel = directory / f"{NAME.replace('-', '_')}-{version}-py3-none-any.whl"
    formula = formula.replace("0" * 64, _sha256(wheel)).replace("1" * 64, _sha256(directory / "requirements.txt"))
    (directory / f"{NAME}.rb").write_text(formula)


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    {"bundle": bundle, "listings": listings}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
