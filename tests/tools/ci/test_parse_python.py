"""Reports from the output of pytest and unittest: recorded from real runs and shortened."""

import pytest

from coretools.tools.ci.parse import parse
from coretools.tools.ci.parsed_report import Failure, ParsedReport

PYTEST_SHORT = """\
============================= test session starts ==============================
platform linux -- Python 3.11.7, pytest-9.0.2, pluggy-1.6.0
rootdir: /p
collected 8 items

test_a.py .FF.sExX                                                       [100%]

==================================== ERRORS ====================================
__________________________ ERROR at setup of test_err __________________________
test_a.py:13: in bad
    raise RuntimeError("in fixture")
E   RuntimeError: in fixture
=================================== FAILURES ===================================
_________________________ TestThing.test_in_class[a - b] _______________________
test_a.py:5: in test_in_class
    assert x == 1, "multi\\nline"
E   AssertionError: multi
E     line
E
E   assert 'a b' == 1
__________________________________ test_deep ___________________________________
test_a.py:7: in test_deep
    helper.boom()
helper.py:2: in boom
    raise ValueError("deep")
E   ValueError: deep
----------------------------- Captured stdout call -----------------------------
other.py:99: in not_a_frame
=========================== short test summary info ============================
FAILED test_a.py::TestThing::test_in_class[a - b] - AssertionError: multi
  line
FAILED test_a.py::test_deep - ValueError: deep
ERROR test_a.py::test_err - RuntimeError: in fixture
==== 2 failed, 2 passed, 1 skipped, 1 xfailed, 1 xpassed, 1 error in 0.59s =====
"""

PYTEST_LONG = """\
=================================== FAILURES ===================================
__________________________________ test_deep ___________________________________

    def test_deep():
>       helper.boom()

test_a.py:7:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _

    def boom():
>       raise ValueError("deep")
E       ValueError: deep

helper.py:2: ValueError
=========================== short test summary info ============================
FAILED test_a.py::test_deep - ValueError: deep
1 failed, 1 passed in 0.65s
"""

PYTEST_NO_LIST = """\
=================================== FAILURES ===================================
__________________________________ test_deep ___________________________________
helper.py:2: in boom
E   ValueError: deep
====================== 1 failed in 0.12 seconds ======================
"""

PYTEST_COLLECTION = """\
============================= test session starts ==============================
collected 8 items / 1 error

==================================== ERRORS ====================================
__________________________ ERROR collecting test_b.py __________________________
/usr/lib/python3.11/importlib/__init__.py:126: in import_module
    return _bootstrap._gcd_import(name[level:], package, level)
test_b.py:1: in <module>
    import nothing_here
E   ModuleNotFoundError: No module named 'nothing_here'
=========================== short test summary info ============================
ERROR test_b.py
!!!!!!!!!!!!!!!!!!!! Interrupted: 1 error during collection !!!!!!!!!!!!!!!!!!!!
=============================== 1 error in 0.80s ===============================
"""

PYTEST_SYNTAX = """\
============================= test session starts ==============================
==================================== ERRORS ====================================
__________________________ ERROR collecting test_b.py __________________________
E     File "/p/test_b.py", line 3
E       def (
E   SyntaxError: invalid syntax
=========================== short test summary info ============================
ERROR test_b.py
=============================== 1 error in 0.80s ===============================
"""

PYTEST_SUBTESTS = """\
============================= test session starts ==============================
=================================== FAILURES ===================================
_______________________________ T.test_sub (i=0) _______________________________
test_u.py:16: in test_sub
E   AssertionError: 0 != 1
_______________________________ T.test_sub (i=2) _______________________________
test_u.py:16: in test_sub
E   AssertionError: 2 != 1
=========================== short test summary info ============================
SUBFAILED(i=0) test_u.py::T::test_sub - AssertionError: 0 != 1
SUBFAILED(i=2) test_u.py::T::test_sub - AssertionError: 2 != 1
============== 2 failed, 2 passed, 3 subtests passed in 0.87s ===============
"""

PYTEST_INSIDE_PYTEST = """\
============================= test session starts ==============================
test_outer.py F.
=================================== FAILURES ===================================
__________________________________ test_inner __________________________________
test_outer.py:9: in test_inner
E   AssertionError: inner run failed
----------------------------- Captured stdout call -----------------------------
============================= test session starts ==============================
=================================== FAILURES ===================================
__________________________________ test_fake ___________________________________
test_fake.py:1: in test_fake
E   AssertionError: not ours
=========================== short test summary info ============================
FAILED test_fake.py::test_fake - AssertionError: not ours
========================= 41 failed, 7 passed in 0.01s =========================
=========================== short test summary info ============================
FAILED test_outer.py::test_inner - AssertionError: inner run failed
========================= 1 failed, 1 passed in 0.52s ==========================
"""

UNITTEST = """\
EF.sFFxu
======================================================================
ERROR: tests.test_imp (unittest.loader._FailedTest.tests.test_imp)
----------------------------------------------------------------------
ImportError: Failed to import test module: tests.test_imp
Traceback (most recent call last):
  File "/usr/lib/python3.11/unittest/loader.py", line 419, in _find_test_path
    module = self._get_module_from_name(name)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/p/tests/test_imp.py", line 1, in <module>
    import nope
ModuleNotFoundError: No module named 'nope'


======================================================================
FAIL: test_fail (tests.test_u.T.test_fail)
doc line
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/p/tests/test_u.py", line 6, in test_fail
    check([1,2],[1,3])
  File "/p/tests/checks.py", line 2, in check
    raise AssertionError("Lists differ")
AssertionError: Lists differ

- [1, 2]
+ [1, 3]

======================================================================
FAIL: test_sub (tests.test_u.T.test_sub) (i=0)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/p/tests/test_u.py", line 16, in test_sub
AssertionError: 0 != 1

======================================================================
FAIL: test_sub (tests.test_u.T.test_sub) (i=2)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/p/tests/test_u.py", line 16, in test_sub
AssertionError: 2 != 1

======================================================================
UNEXPECTED SUCCESS: test_xp (tests.test_u.T.test_xp)
----------------------------------------------------------------------
Ran 7 tests in 0.001s

FAILED (failures=3, errors=1, skipped=1, expected failures=1, unexpected successes=1)
"""

UNITTEST_FIXTURE = """\
======================================================================
ERROR: setUpClass (test_c.C)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/p/test_c.py", line 4, in setUpClass
    raise OSError("no server")
OSError: no server

----------------------------------------------------------------------
Ran 2 tests in 0.000s

FAILED (errors=1)
"""


def counts(report: ParsedReport | None) -> tuple[int, int, int, int]:
    assert report is not None
    return report.passed, report.failed, report.skipped, report.errors


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param(PYTEST_SHORT, (3, 2, 2, 1), id="pytest with short tracebacks"),
        pytest.param(PYTEST_LONG, (1, 1, 0, 0), id="pytest -q with long tracebacks"),
        pytest.param(PYTEST_NO_LIST, (0, 1, 0, 0), id="old pytest without a list of failures"),
        pytest.param(PYTEST_COLLECTION, (0, 0, 0, 1), id="pytest that can't import a file"),
        pytest.param(PYTEST_SUBTESTS, (2, 2, 0, 0), id="pytest with sub-tests"),
        pytest.param(PYTEST_INSIDE_PYTEST, (1, 1, 0, 0), id="a test that runs pytest itself"),
        pytest.param("no tests ran in 0.01s\n", (0, 0, 0, 0), id="pytest without tests"),
        pytest.param("==== 3 passed, 2 deselected in 61.02s (0:01:01) ====\n", (3, 0, 0, 0), id="pytest over a minute"),
        pytest.param("2 deselected in 0.02s\n", (0, 0, 0, 0), id="pytest -q that deselected all"),
        pytest.param("== 1 passed in 1s ==\n== 2 passed in 1s ==\n", (3, 0, 0, 0), id="two sessions in a row"),
        pytest.param(UNITTEST, (1, 4, 2, 1), id="unittest"),
        pytest.param(UNITTEST_FIXTURE, (2, 0, 0, 1), id="unittest with a broken class fixture"),
        pytest.param("...\nRan 3 tests in 0.001s\n\nOK (skipped=1)\n", (2, 0, 1, 0), id="unittest that passes"),
    ],
)
def test_the_counts_are_those_the_runner_printed(output: str, expected: tuple[int, int, int, int]) -> None:
    """ci-9: counts come from the runner's own summary; ci-11: sessions add up, nested sessions do not."""
    assert counts(parse(output)) == expected


FAILURES = {
    "pytest: the line in the test's own file": (
        PYTEST_SHORT,
        [
            (
                "test_a.py::TestThing::test_in_class[a - b]",
                "test_a.py",
                5,
                "AssertionError: multi line assert 'a b' == 1",
            ),
            ("test_a.py::test_deep", "test_a.py", 7, "ValueError: deep"),
            ("test_a.py::test_err", "test_a.py", 13, "RuntimeError: in fixture"),
        ],
    ),
    "pytest, long tracebacks": (PYTEST_LONG, [("test_a.py::test_deep", "test_a.py", 7, "ValueError: deep")]),
    "pytest without a list": (PYTEST_NO_LIST, [("test_deep", "helper.py", 2, "ValueError: deep")]),
    "pytest: a file that can't be imported": (
        PYTEST_COLLECTION,
        [("test_b.py", "test_b.py", 1, "ModuleNotFoundError: No module named 'nothing_here'")],
    ),
    "pytest: a file that is no Python": (
        PYTEST_SYNTAX,
        [("test_b.py", "/p/test_b.py", 3, 'File "/p/test_b.py", line 3 def ( SyntaxError: invalid syntax')],
    ),
    "pytest: each sub-test": (
        PYTEST_SUBTESTS,
        [
            ("test_u.py::T::test_sub (i=0)", "test_u.py", 16, "AssertionError: 0 != 1"),
            ("test_u.py::T::test_sub (i=2)", "test_u.py", 16, "AssertionError: 2 != 1"),
        ],
    ),
    "pytest: nothing from an inner run": (
        PYTEST_INSIDE_PYTEST,
        [("test_outer.py::test_inner", "test_outer.py", 9, "AssertionError: inner run failed")],
    ),
    "unittest": (
        UNITTEST,
        [
            (
                "tests.test_imp (unittest.loader._FailedTest.tests.test_imp)",
                "/p/tests/test_imp.py",
                1,
                "ModuleNotFoundError: No module named 'nope'",
            ),
            (
                "test_fail (tests.test_u.T.test_fail)",
                "/p/tests/test_u.py",
                6,
                "AssertionError: Lists differ - [1, 2] + [1, 3]",
            ),
            ("test_sub (tests.test_u.T.test_sub) (i=0)", "/p/tests/test_u.py", 16, "AssertionError: 0 != 1"),
            ("test_sub (tests.test_u.T.test_sub) (i=2)", "/p/tests/test_u.py", 16, "AssertionError: 2 != 1"),
            ("test_xp (tests.test_u.T.test_xp)", "", 0, "unexpected success"),
        ],
    ),
}


@pytest.mark.parametrize(("output", "expected"), FAILURES.values(), ids=FAILURES)
def test_each_failure_has_its_name_place_and_message(output: str, expected: list[tuple[str, str, int, str]]) -> None:
    """ci-10: name, file, line and message of each failure."""
    report = parse(output)
    assert report is not None
    assert report.failures == tuple(Failure(*fields) for fields in expected)
