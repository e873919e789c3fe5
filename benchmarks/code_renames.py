"""Rename symbols of a checkout one after the other, and run the project's own tests after each.

    python -m benchmarks.code_renames CHECKOUT --under src --count 20 -- python -m pytest -q

The checkout must be a clean git work tree: it is restored by git after each rename. Symbols are those of
`benchmarks.code_servers`. A rename that the tool refuses is counted, with its reason; names that a string contains are
left out.
"""

import argparse
import asyncio
import os
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.code_servers import symbols
from coretools.app.assembly import open_assembly
from coretools.config.settings import Settings
from coretools.errors import CoreError
from coretools.operations.call import SilentCall
from coretools.tools.code.renames import RenamedFiles, RenameTools
from coretools.tools.code.symbol_target import SymbolTarget
from coretools.tools.filesystem.change_checks import ChangeChecks
from coretools.tools.filesystem.known_files import KnownFiles


def passes(command: Sequence[str], top: Path) -> bool:
    """Run the tests."""
    return subprocess.run(command, cwd=top, capture_output=True, check=False).returncode == 0


def restore(top: Path) -> None:
    """Take the rename back."""
    subprocess.run(["git", "checkout", "-q", "--", "."], cwd=top, check=True)


def mentioned_as_text(top: Path, name: str) -> bool:
    """Whether a string is the name, or ends with it: a rename can't follow that, and does not claim to."""
    pattern = rf"""["'](?:[\w.]*[.:])?{re.escape(name)}["']"""
    files = [one for one in top.rglob("*") if one.suffix in (".py", ".ts") and "node_modules" not in one.parts]
    return any(re.search(pattern, one.read_text("utf-8", "replace")) for one in files)


async def rename(tools: RenameTools, target: SymbolTarget, new_name: str) -> RenamedFiles:
    """Rename one symbol."""
    path, name = target.content.display_path, target.name
    return await tools.code_rename(path, name, new_name, line=target.line, call=SilentCall())


async def main() -> None:
    """Rename and test."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--under", default=".")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    top = options.checkout.resolve()
    if not passes(options.command, top):
        raise SystemExit("the tests of the project fail without any change")
    done = failed = refused = as_text = replaced = 0
    seconds = 0.0
    async with open_assembly(Settings(roots=(str(top),), has_undo=False), os.environ) as assembly:
        roots, limits, known = assembly.roots, assembly.settings.limits, KnownFiles()
        tools = RenameTools(roots, limits, assembly.servers, known_files=known, checks=ChangeChecks())
        for target in symbols(roots, top, options.under, options.candidates):
            if done + failed >= options.count:
                break
            if mentioned_as_text(top, target.name):
                as_text += 1
                continue
            began = time.perf_counter()
            try:
                renamed = await rename(tools, target, f"{target.name}_renamed")
            except CoreError as error:
                refused += 1
                print(f"refused: {target.content.display_path} {target.name}: {error}")
                continue
            seconds += time.perf_counter() - began
            replaced += renamed.replaced
            if passes(options.command, top):
                done += 1
                print(f"passes: {target.content.display_path}:{target.line} {target.name}", flush=True)
            else:
                failed += 1
                print(f"FAILED: {target.content.display_path}:{target.line} {target.name}")
            restore(top)
    print(
        f"{top.name}: {done} renames with passing tests, {failed} with failing ones, {refused} refused; {as_text} names"
        f" left out that strings contain; {replaced} replacements, {seconds / max(1, done + failed):.2f} s for each"
    )


if __name__ == "__main__":
    asyncio.run(main())
