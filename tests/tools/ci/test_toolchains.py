"""Detection, run and report with the real tool chains, each on a small project; skipped if one is not installed."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.tools.ci.test_tools import ci_in, write


def needs(*programs: str) -> pytest.MarkDecorator:
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@needs("node", "npm")
async def test_node_runs_its_own_runner_without_a_script(tmp_path: Path) -> None:
    """ci-4, ci-9, ci-10: TAP or spec, whichever this version prints to a pipe."""
    write(tmp_path / "package.json", '{"name": "sample", "version": "1.0.0"}')
    tests = "const test = require('node:test'); const assert = require('node:assert');\ntest('good', () => {});\n"
    write(tmp_path / "test/sample.test.js", tests + "test('bad', () => assert.equal(1, 2));\n")
    async with ci_in(tmp_path) as ci:
        report = await ci.ci_test()
    assert report.command == "node --test"
    assert (report.counts["passed"], report.counts["failed"]) == (1, 1)
    assert [(failure.name, failure.file, failure.line) for failure in report.failures] == [
        ("bad", "test/sample.test.js", 3)
    ]


@needs("node", "npm")
async def test_npm_runs_the_scripts_of_the_project(tmp_path: Path) -> None:
    """ci-4: build and test by name."""
    scripts = '{"build": "node -p 6*7", "test": "node --test sample.test.js"}'
    write(tmp_path / "package.json", f'{{"name": "sample", "version": "1.0.0", "scripts": {scripts}}}')
    write(tmp_path / "sample.test.js", "require('node:test')('good', () => {});\n")
    async with ci_in(tmp_path) as ci:
        build = await ci.ci_build()
        report = await ci.ci_test()
    assert not build.failed
    assert "\n42\n" in f"{build.text()}\n"
    assert report.counts["passed"] == report.counts["total"] == 1


@needs("cargo")
async def test_cargo_runs_every_test_binary(tmp_path: Path) -> None:
    """ci-9, ci-10: library and integration tests, summed."""
    write(tmp_path / "Cargo.toml", '[package]\nname = "sample"\nversion = "0.1.0"\nedition = "2021"\n')
    write(tmp_path / "src/lib.rs", "#[test]\nfn good() {}\n#[test]\nfn bad() {\n    assert_eq!(1, 2);\n}\n")
    write(tmp_path / "tests/more.rs", '#[test]\nfn worse() {\n    panic!("boom");\n}\n')
    async with ci_in(tmp_path) as ci:
        report = await ci.ci_test()
    assert (report.counts["passed"], report.counts["failed"]) == (1, 2), report.text()
    assert [(failure.name, failure.file, failure.line) for failure in report.failures] == [
        ("bad", "src/lib.rs", 5),
        ("worse", "tests/more.rs", 3),
    ]


@needs("cmake", "ctest", "make", "cc")
async def test_cmake_is_configured_built_and_tested(tmp_path: Path) -> None:
    """ci-7, ci-9: three steps; a failed build ends them."""
    settings = (
        "cmake_minimum_required(VERSION 3.20)\nproject(sample C)\nenable_testing()\nadd_executable(prog prog.c)\n"
    )
    write(
        tmp_path / "CMakeLists.txt", settings + "add_test(NAME good COMMAND prog)\nadd_test(NAME bad COMMAND prog x)\n"
    )
    write(tmp_path / "prog.c", "int main(int count, char **words) { (void)words; return count > 1; }\n")
    async with ci_in(tmp_path) as ci:
        report = await ci.ci_test()
        write(tmp_path / "prog.c", "int main(void) { return nothing; }\n")
        broken = await ci.ci_test()
    assert report.counts == {"passed": 1, "failed": 1, "skipped": 0, "errors": 0, "total": 2}
    assert [failure.name for failure in report.failures] == ["bad"]
    assert broken.command == "cmake -S . -B build; cmake --build build"
    assert broken.counts == {}
    assert "prog.c" in broken.text()


@needs("make")
async def test_make_may_run_several_runners(tmp_path: Path) -> None:
    """ci-1, ci-11: the target of the project; the counts of its runners add up."""
    python = f"'{sys.executable}'"
    lines = [f"{python} -m unittest test_one", f"{python} -m pytest -q -p no:cacheprovider test_two.py"]
    write(tmp_path / "Makefile", "test:\n" + "".join(f"\t-{line}\n" for line in lines))
    write(tmp_path / "test_one.py", "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.fail()\n")
    write(tmp_path / "test_two.py", "def test_b(): pass\n")
    async with ci_in(tmp_path) as ci:
        report = await ci.ci_test()
    assert report.command == "make test"
    assert report.counts == {"passed": 1, "failed": 1, "skipped": 0, "errors": 0, "total": 2}
