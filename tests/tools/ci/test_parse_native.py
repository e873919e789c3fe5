"""Reports from cargo, nextest, go, ctest, dotnet, Maven and Gradle: recorded outputs, shortened."""

import json

import pytest

from coretools.tools.ci.parse import parse
from coretools.tools.ci.parsed_report import Failure
from coretools.tools.ci.read_go import displayed, go_text

CARGO = """\
running 5 tests
test tests::ign ... ignored
test tests::ok ... ok
test tests::res ... FAILED
test tests::should - should panic ... FAILED
test tests::bad ... FAILED

failures:

---- tests::res stdout ----
Error: "no"

---- tests::should stdout ----
note: test did not panic as expected at src/lib.rs:6:32
---- tests::bad stdout ----

thread 'tests::bad' (5298) panicked at src/lib.rs:4:24:
assertion `left == right` failed: sums
  left: 2
 right: 3
stack backtrace:
   0: __rustc::rust_begin_unwind
note: Some details are omitted

failures:
    tests::bad
    tests::res
    tests::should

test result: FAILED. 1 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.12s

error: test failed, to rerun pass `--lib`
     Running tests/it.rs (target/debug/deps/it-4b221586d8d4eec4)

running 1 test
test old ... FAILED

failures:

---- old stdout ----
thread 'old' panicked at 'explicit panic', tests/it.rs:1:28
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.07s

   Doc-tests sample

running 1 test
test src/lib.rs - add (line 5) ... FAILED

failures:

---- src/lib.rs - add (line 5) stdout ----
error[E0425]: cannot find value `x`

test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

Caused by:
  process didn't exit successfully: `/p/target/debug/deps/die-1` (signal: 6, SIGABRT: process abort signal)
"""

NEXTEST = """\
    Starting 4 tests across 2 binaries
        PASS [   0.003s] (1/4) sample tests::ok
        FAIL [   0.004s] (2/4) sample tests::bad
  stdout ───

    running 1 test
    test tests::bad ... FAILED
    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.00s

  stderr ───

    thread 'tests::bad' panicked at src/lib.rs:4:24:
    assertion failed: false
    note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace

     Summary [   0.010s] 4 tests run: 2 passed, 2 failed, 1 skipped
        FAIL [   0.004s] (2/4) sample tests::bad
     SIGABRT [   0.004s] (4/4) sample::it aborts
error: test run failed
"""

GO_VERBOSE = """\
=== RUN   TestOk
--- PASS: TestOk (0.00s)
=== RUN   TestTable
=== RUN   TestTable/one
    calc_test.go:12: got 2, want 3
        with more
=== RUN   TestTable/two
--- FAIL: TestTable (0.00s)
    --- FAIL: TestTable/one (0.00s)
    --- PASS: TestTable/two (0.00s)
=== RUN   TestSkip
    calc_test.go:20: no network
--- SKIP: TestSkip (0.00s)
=== RUN   TestPanic
--- FAIL: TestPanic (0.00s)
panic: boom [recovered]
\tpanic: boom

goroutine 8 [running]:
testing.tRunner.func1.2({0x1, 0x2})
\t/usr/lib/go/src/testing/testing.go:1632 +0x230
example.com/m/calc.TestPanic(0x0?)
\t/p/calc/calc_test.go:30 +0x25
FAIL\texample.com/m/calc\t0.004s
# example.com/m/broken
broken/x.go:5:2: undefined: foo
FAIL\texample.com/m/broken [build failed]
?   \texample.com/m/cmd\t[no test files]
FAIL
"""

GO_PLAIN = """\
--- FAIL: TestSum (0.00s)
    sum_test.go:7: got 2
FAIL
FAIL\texample.com/m/sum\t0.003s
ok  \texample.com/m/calc\t0.004s
ok  \texample.com/m/none\t0.004s [no tests to run]
FAIL
"""

CTEST = """\
    Start 1: good
1/6 Test #1: good .............................   Passed    0.01 sec
    Start 2: bad one
2/6 Test #2: bad one ..........................***Failed    0.02 sec
prog: /p/sum.c:5: main: Assertion `1 == 2' failed.

    Start 3: missing
Could not find executable ./no_such_program
3/6 Test #3: missing ..........................***Not Run   0.00 sec
4/6 Test #4: skipped ..........................***Skipped   0.02 sec
5/6 Test #5: slow .............................***Timeout   1.00 sec
6/6 Test #6: dis ..............................***Not Run (Disabled)   0.00 sec

40% tests passed, 3 tests failed out of 5

Total Test time (real) =   1.05 sec
"""

DOTNET = """\
  Failed Shop.Tests.CartTests.Adds [12 ms]
  Error Message:
   Assert.Equal() Failure: Values differ
Expected: 1
Actual:   2
  Stack Trace:
     at Shop.Tests.CartTests.Adds() in /p/Shop.Tests/CartTests.cs:line 12
     at System.RuntimeMethodHandle.InvokeMethod(Object target)

Failed!  - Failed:     1, Passed:     2, Skipped:     1, Total:     4, Duration: 12 ms - Shop.Tests.dll (net8.0)
Passed!  - Failed:     0, Passed:     3, Skipped:     0, Total:     3, Duration: 5 ms - Core.Tests.dll (net8.0)
"""

DOTNET_LOGGER = """\
  Shop.Tests test failed with 1 error(s) (0.9s)
    /p/Shop.Tests/CartTests.cs(12): error TESTERROR:
      Shop.Tests.CartTests.Adds (12ms): Error Message: Assert.Equal() Failure
Test summary: total: 4, failed: 1, succeeded: 2, skipped: 1, duration: 0.9s
"""

DOTNET_PLATFORM = """\
failed Shop.Tests.CartTests.Adds (12ms)
  Assert.Equal() Failure
    at Shop.Tests.CartTests.Adds() in /p/CartTests.cs:12
Test run summary: Failed! - bin/Debug/net9.0/Shop.Tests.dll (net9.0|x64)
  total: 4
  failed: 1
  succeeded: 2
  skipped: 1
  duration: 100ms
"""

MAVEN = """\
[ERROR] Tests run: 4, Failures: 1, Errors: 1, Skipped: 1, Time elapsed: 0.05 s <<< FAILURE! -- in org.x.CalcTest
[ERROR] org.x.CalcTest.bad -- Time elapsed: 0.004 s <<< FAILURE!
org.opentest4j.AssertionFailedError: sums ==> expected: <1> but was: <2>
\tat org.junit.jupiter.api.AssertionUtils.fail(AssertionUtils.java:39)
\tat org.x.CalcTest.bad(CalcTest.java:4)

[INFO] Results:
[INFO]
[ERROR] Failures:
[ERROR]   CalcTest.bad:4 sums ==> expected: <1> but was: <2>
[ERROR] Errors:
[ERROR]   CalcTest.boom:5->helper:9 » IllegalState boom
[INFO]
[ERROR] Tests run: 4, Failures: 1, Errors: 1, Skipped: 1
[INFO]
[INFO] Tests run: 2, Failures: 0, Errors: 0, Skipped: 0
"""

MAVEN_OLD = """\
Tests run: 3, Failures: 1, Errors: 1, Skipped: 0, Time elapsed: 0.05 sec <<< FAILURE!
testBad(org.x.CalcTest)  Time elapsed: 0.01 sec  <<< FAILURE!
\tat org.x.CalcTest.testBad(CalcTest.java:8)

Results :

Failed tests:   testBad(org.x.CalcTest): expected:<1> but was:<2>

Tests in error:
  testErr(org.x.CalcTest): boom

Tests run: 3, Failures: 1, Errors: 1, Skipped: 0
"""

GRADLE = """\
> Task :test FAILED

CalcTest > bad() FAILED
    org.opentest4j.AssertionFailedError at CalcTest.java:12

org.x.OtherTest > full() FAILED
    org.opentest4j.AssertionFailedError: expected: <1> but was: <2>
        at org.junit.jupiter.api.AssertionUtils.fail(AssertionUtils.java:39)
        at org.x.OtherTest.full(OtherTest.java:9)

5 tests completed, 2 failed, 1 skipped
"""

REPORTS = {
    "cargo": (
        CARGO,
        (1, 5, 1, 1),
        [
            ("tests::res", "", 0, 'Error: "no"'),
            ("tests::should", "src/lib.rs", 6, "test did not panic as expected at src/lib.rs:6:32"),
            ("tests::bad", "src/lib.rs", 4, "assertion `left == right` failed: sums left: 2 right: 3"),
            ("old", "tests/it.rs", 1, "explicit panic"),
            ("src/lib.rs - add (line 5)", "src/lib.rs", 5, "error[E0425]: cannot find value `x`"),
            ("/p/target/debug/deps/die-1", "", 0, "signal: 6, SIGABRT: process abort signal"),
        ],
    ),
    "cargo without details": (
        "test a ... FAILED\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n",
        (2, 1, 0, 0),
        [("a", "", 0, "")],
    ),
    "nextest": (
        NEXTEST,
        (2, 2, 1, 0),
        [
            ("sample tests::bad", "src/lib.rs", 4, "assertion failed: false"),
            ("sample::it aborts", "", 0, "sigabrt"),
        ],
    ),
    "go test -v": (
        GO_VERBOSE,
        (2, 2, 1, 1),
        [
            ("TestTable/one", "example.com/m/calc/calc_test.go", 12, "got 2, want 3 with more"),
            ("TestPanic", "/p/calc/calc_test.go", 30, "panic: boom [recovered]"),
            ("example.com/m/broken", "broken/x.go", 5, "undefined: foo"),
        ],
    ),
    "go test, where a package is all that passes": (
        GO_PLAIN,
        (1, 1, 0, 0),
        [("TestSum", "example.com/m/sum/sum_test.go", 7, "got 2")],
    ),
    "ctest": (
        CTEST,
        (1, 3, 2, 0),
        [
            ("bad one", "/p/sum.c", 5, "prog: /p/sum.c:5: main: Assertion `1 == 2' failed."),
            ("missing", "", 0, "Not Run"),
            ("slow", "", 0, "Timeout"),
        ],
    ),
    "dotnet": (
        DOTNET,
        (5, 1, 1, 0),
        [
            (
                "Shop.Tests.CartTests.Adds",
                "/p/Shop.Tests/CartTests.cs",
                12,
                "Assert.Equal() Failure: Values differ Expected: 1 Actual: 2",
            )
        ],
    ),
    "dotnet, terminal logger": (
        DOTNET_LOGGER,
        (2, 1, 1, 0),
        [
            (
                "Shop.Tests.CartTests.Adds",
                "/p/Shop.Tests/CartTests.cs",
                12,
                "Error Message: Assert.Equal() Failure",
            )
        ],
    ),
    "dotnet, testing platform": (
        DOTNET_PLATFORM,
        (2, 1, 1, 0),
        [("Shop.Tests.CartTests.Adds", "/p/CartTests.cs", 12, "Assert.Equal() Failure")],
    ),
    "Maven": (
        MAVEN,
        (3, 1, 1, 1),
        [
            ("CalcTest.bad", "org/x/CalcTest.java", 4, "sums ==> expected: <1> but was: <2>"),
            ("CalcTest.boom", "CalcTest.java", 5, "» IllegalState boom"),
        ],
    ),
    "Maven before Surefire 2.13": (
        MAVEN_OLD,
        (1, 1, 0, 1),
        [
            ("CalcTest.testBad", "org/x/CalcTest.java", 8, "expected:<1> but was:<2>"),
            ("CalcTest.testErr", "", 0, "boom"),
        ],
    ),
    "Gradle": (
        GRADLE,
        (2, 2, 1, 0),
        [
            ("CalcTest > bad()", "CalcTest.java", 12, "org.opentest4j.AssertionFailedError"),
            (
                "org.x.OtherTest > full()",
                "org/x/OtherTest.java",
                9,
                "org.opentest4j.AssertionFailedError: expected: <1> but was: <2>",
            ),
        ],
    ),
}


@pytest.mark.parametrize(("output", "counts", "failures"), REPORTS.values(), ids=REPORTS)
def test_a_report_has_the_counts_and_the_failures_of_the_run(
    output: str, counts: tuple[int, int, int, int], failures: list[tuple[str, str, int, str]]
) -> None:
    """ci-9: counts from the runner's summary; ci-10: name, file, line and message of each failure."""
    report = parse(output)
    assert report is not None
    assert (report.passed, report.failed, report.skipped, report.errors) == counts
    assert report.failures == tuple(Failure(*fields) for fields in failures)


def events(*outputs: tuple[str, str]) -> str:
    return "".join(
        json.dumps({"Time": "2026-01-01T00:00:00Z", "Action": "output", "Package": package, "Output": output}) + "\n"
        for package, output in outputs
    )


def test_the_events_of_go_are_read_as_the_text_they_carry() -> None:
    """ci-9: packages that run concurrently are distinguished, and a missing line end hides no result."""
    text = go_text(
        events(
            ("m/a", "=== RUN   TestA\n"),
            ("m/b", "=== RUN   TestB\n"),
            ("m/a", "printed without a line end"),
            ("m/b", "    b_test.go:3: bad\n"),
            ("m/a", "--- PASS: TestA (0.00s)\n"),
            ("m/b", "--- FAIL: TestB (0.00s)\n"),
            ("m/b", "FAIL\tm/b\t0.1s\n"),
            ("m/a", "ok  \tm/a\t0.1s\n"),
        )
        + "not an event\n[1]\n{broken\n"
    )
    report = parse(text)
    assert report is not None
    assert (report.passed, report.failed) == (1, 1)
    assert report.failures == (Failure("TestB", "m/b/b_test.go", 3, "bad"),)
    assert "not an event" in text
    assert "=== RUN" not in displayed(text)
    assert "b_test.go:3: bad" in displayed(text)


def test_text_that_is_no_event_of_go_stays_as_it_is() -> None:
    """ci-9: other JSON is ordinary output."""
    assert go_text("plain\n") == "plain\n"
    assert go_text('{"a": 1}\n') == '{"a": 1}\n'
