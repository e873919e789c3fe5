"""Reports from the output of jest, vitest, mocha, node and bun, and from TAP: recorded from real runs and shortened."""

import pytest

from coretools.tools.ci.parse import parse
from coretools.tools.ci.parsed_report import Failure, ParsedReport

# ruff: noqa: RUF001  # these runners print signs that look like letters


JEST = """\
FAIL ./a.test.js
  ● Console

    console.log
      ● not a title

  ● suite › fails here

    expect(received).toBe(expected) // Object.is equality

    Expected: 3
    Received: 2

    \x1b[0m \x1b[90m 1 |\x1b[39m test('adds')
    \x1b[31m\x1b[1m>\x1b[22m\x1b[39m\x1b[90m 2 |\x1b[39m expect(1 + 1).toBe(3)
     \x1b[90m   |\x1b[39m               \x1b[31m^\x1b[39m

      at Object.toBe (a.test.js:2:68)

FAIL ./b.test.js
  ● Test suite failed to run

    Cannot find module 'nope' from 'b.test.js'

    > 1 | require('nope')
        | ^

      at Resolver._throwModNotFoundError (../node_modules/jest-resolve/build/index.js:1031:11)
      at Object.require (b.test.js:1:1)

Test Suites: 2 failed, 2 total
Tests:       1 failed, 1 skipped, 1 todo, 1 passed, 4 total
Snapshots:   0 total
Time:        0.38 s
"""

VITEST = """\
 \x1b[31m❯\x1b[39m a.test.js \x1b[2m(\x1b[22m\x1b[2m5 tests\x1b[22m\x1b[2m | \x1b[22m\x1b[31m2 failed\x1b[39m
\x1b[2m Test Files \x1b[22m \x1b[1m\x1b[31m2 failed\x1b[39m\x1b[22m\x1b[90m (2)\x1b[39m
\x1b[2m      Tests \x1b[22m \x1b[31m2 failed\x1b[39m | \x1b[32m1 passed\x1b[39m | 1 skipped | 1 todo\x1b[90m (5)\x1b[39m
\x1b[2m   Duration \x1b[22m 430ms

⎯⎯⎯⎯⎯⎯ Failed Suites 1 ⎯⎯⎯⎯⎯⎯⎯

\x1b[41m\x1b[1m FAIL \x1b[22m\x1b[49m b.test.js\x1b[2m [ b.test.js ]\x1b[22m
Error: Cannot find package 'nope' imported from /p/b.test.js
 ❯ b.test.js:1:1
⎯⎯⎯⎯⎯⎯⎯[1/3]⎯

 FAIL  a.test.js > suite > fails here
AssertionError: expected 2 to be 3 // Object.is equality

- Expected
+ Received

- 3
+ 2

 ❯ check ../node_modules/lib/check.js:9:9
 ❯ a.test.js:3:68
      1| import {test, expect, describe} from 'vitest';
⎯⎯⎯⎯⎯⎯⎯[2/3]⎯

 FAIL  |unit| a.test.js > throws
Error: boom
second
 ❯ a.test.js:4:30
⎯⎯⎯⎯⎯⎯⎯[3/3]⎯
"""

MOCHA = """\
  ✔ adds
  suite
    1) fails here
    - sk
  1) not in the list of failures

  1 passing (6ms)
  1 pending
  3 failing

  1) suite
       fails here:

      AssertionError [ERR_ASSERTION]: 1 == 2
      + expected - actual

      -1
      +2

      at Context.<anonymous> (a.js:3:57)
      at process.processImmediate (node:internal/timers:483:21)

  2) suite
       deep
         throws:
     Error: boom
second
      at Context.<anonymous> (a.js:3:145)

  3) hooked
       "before all" hook for "never":
     Error: hook
      at Context.<anonymous> (a.js:5:49)
"""

NODE_SPEC = """\
✔ adds (0.928157ms)
✖ fails (0.8828ms)
ℹ tests 8
ℹ suites 1
ℹ pass 2
ℹ fail 2
ℹ cancelled 0
ℹ skipped 1
ℹ todo 1
ℹ duration_ms 268.386022

✖ failing tests:

test at a.test.mjs:3:1
✖ fails (0.8828ms)
  AssertionError [ERR_ASSERTION]: 1 == 2
      at TestContext.<anonymous> (file:///p/a.test.mjs:3:28)

test at b.test.mjs:1:1
✖ suite (3.2ms)
  '1 subtest failed'

test at a.test.mjs:7:53
✖ inner bad (1.659643ms)
  Error: boom
      at TestContext.<anonymous> (file:///p/a.test.mjs:7:84)
"""

NODE_TAP = """\
TAP version 13
# Subtest: fails
not ok 1 - fails
  ---
  duration_ms: 1.351024
  location: '/p/a.test.mjs:3:1'
  failureType: 'testCodeFailure'
  error: '1 == 2'
  ...
# Subtest: suite
    # Subtest: inner bad
    not ok 1 - inner bad
      ---
      location: '/p/a.test.mjs:7:53'
      failureType: 'testCodeFailure'
      error: |-
        Expected values

        to be equal
      code: 'ERR_ASSERTION'
      ...
    1..1
not ok 2 - suite
  ---
  location: '/p/a.test.mjs:7:1'
  failureType: 'subtestsFailed'
  error: '1 subtest failed'
  ...
ok 3 - skipped # SKIP why
1..3
# tests 3
# suites 1
# pass 0
# fail 2
# cancelled 0
# skipped 1
# todo 0
# duration_ms 287.697855
"""

TAP = """\
1..5
ok 1 - first
not ok 2 second
  ---
  message: 'no such luck'
  at: Test.run (lib/x.js:12:3)
  ...
not ok 3 # TODO later
ok 4 - fourth # skip no network
"""

BUN = """\
bun test v1.2.0

a.test.js:
(pass) adds [0.02ms]
3 | test('fails here', () => expect(1 + 1).toBe(3));
                                           ^
error: expect(received).toBe(expected)

Expected: 3
Received: 2

      at <anonymous> (/p/a.test.js:3:68)
(fail) suite > fails here [0.14ms]
(skip) suite > sk

# Unhandled error between tests
-------------------------------
error: Cannot find package 'nope' from '/p/b.test.js'

 1 pass
 1 skip
 2 fail
 1 error
 2 expect() calls
Ran 4 tests across 2 files. [5.00ms]
"""

AVA = """
  Uncaught exception in broken.test.js

  broken.test.js:2

   1: import test from 'ava';
   2: throw new Error('at load');
   3:

  Error: at load

  › file://broken.test.js:2:7

  ✘ broken.test.js exited with a non-zero exit code: 1
  - [skip] test › later
  - [todo] test › someday
  ✔ test › minutes
  ✘ [fail]: test › wrong
  ✔ [expected fail] test › known
  ✘ [fail]: test › throws Rejected promise returned by test
  ─

  test › wrong

  test.js:4

   3: test('minutes', t => { t.is(ms('1m'), 60000); });
   4: test('wrong', t => { t.is(ms('1m'), 1); });
   5: test.skip('later', t => {});

  Difference (- actual, + expected):

  - 60000
  + 1

  › file://test.js:4:24



  test › throws

  Rejected promise returned by test. Reason:

  TypeError {
    message: 'boom',
  }

  TypeError: boom
      at file:///app/test.js:7:35
      at Test.callFn (file:///app/node_modules/ava/lib/test.js:525:26)
      at Test.run (file:///app/node_modules/ava/lib/test.js:534:33)

  ─

  2 tests failed
  1 known failure
  1 test skipped
  1 test todo
  1 uncaught exception
"""

AVA_PASSED = """
  ✔ good
  ─

  1 test passed
"""

AVA_TAP = """\
TAP version 13
ok 1 - later # SKIP
not ok 2 - someday # TODO
ok 3 - minutes
not ok 4 - throws
  ---
    name: AssertionError
    message: Rejected promise returned by test
    at: 'file:///app/test.js:7:35'
  ...

1..4
# tests 3
# pass 1
# skip 1
# fail 2
"""

REPORTS = {
    "ava": (
        AVA,
        (1, 2, 3, 1),
        [
            ("Uncaught exception in broken.test.js", "broken.test.js", 2, "Error: at load"),
            ("test › wrong", "test.js", 4, "Difference (- actual, + expected): - 60000 + 1"),
            (
                "test › throws",
                "/app/test.js",
                7,
                "Rejected promise returned by test. Reason: TypeError { message: 'boom', } TypeError: boom",
            ),
        ],
    ),
    "ava, all passed": (AVA_PASSED, (1, 0, 0, 0), []),
    "ava --tap": (
        AVA_TAP,
        (1, 1, 2, 0),
        [("throws", "/app/test.js", 7, "Rejected promise returned by test")],
    ),
    "jest": (
        JEST,
        (1, 1, 2, 1),
        [
            (
                "suite › fails here",
                "a.test.js",
                2,
                "expect(received).toBe(expected) // Object.is equality Expected: 3 Received: 2",
            ),
            ("Test suite failed to run", "b.test.js", 1, "Cannot find module 'nope' from 'b.test.js'"),
        ],
    ),
    "vitest": (
        VITEST,
        (1, 2, 2, 1),
        [
            ("b.test.js", "b.test.js", 1, "Error: Cannot find package 'nope' imported from /p/b.test.js"),
            (
                "suite > fails here",
                "a.test.js",
                3,
                "AssertionError: expected 2 to be 3 // Object.is equality - Expected + Received - 3 + 2",
            ),
            ("throws", "a.test.js", 4, "Error: boom second"),
        ],
    ),
    "mocha": (
        MOCHA,
        (1, 3, 1, 0),
        [
            ("suite fails here", "a.js", 3, "AssertionError [ERR_ASSERTION]: 1 == 2 + expected - actual -1 +2"),
            ("suite deep throws", "a.js", 3, "Error: boom second"),
            ('hooked "before all" hook for "never"', "a.js", 5, "Error: hook"),
        ],
    ),
    "node, spec": (
        NODE_SPEC,
        (2, 2, 2, 0),
        [
            ("fails", "a.test.mjs", 3, "AssertionError [ERR_ASSERTION]: 1 == 2"),
            ("inner bad", "a.test.mjs", 7, "Error: boom"),
        ],
    ),
    "node, TAP": (
        NODE_TAP,
        (0, 2, 1, 0),
        [
            ("fails", "/p/a.test.mjs", 3, "1 == 2"),
            ("inner bad", "/p/a.test.mjs", 7, "Expected values to be equal"),
        ],
    ),
    "TAP of any other program, one point missing": (
        TAP,
        (1, 1, 2, 1),
        [("second", "lib/x.js", 12, "no such luck")],
    ),
    "bun": (
        BUN,
        (1, 1, 1, 1),
        [
            (
                "suite > fails here",
                "/p/a.test.js",
                3,
                "error: expect(received).toBe(expected) Expected: 3 Received: 2",
            )
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


@pytest.mark.parametrize(
    "output",
    [
        pytest.param("", id="nothing"),
        pytest.param("ok\nnot ok, really\n", id="words of TAP without a plan"),
        pytest.param("Tests: all fine\n", id="words of jest"),
        pytest.param("added 120 packages in 3s\n5 packages in 2.00s\n", id="counts of something else"),
        pytest.param("  1) first\n  2) second\n", id="a numbered list"),
        pytest.param("FAIL  this\n FAIL  that\n", id="failures without counts"),
    ],
)
def test_output_of_no_known_runner_gives_no_report(output: str) -> None:
    """ci-9: unknown output is reported as such, never as zero tests."""
    assert parse(output) is None


def test_reports_of_several_runners_add_up() -> None:
    """ci-11: `make test` may run more than one."""
    both = parse(f"== 2 passed, 1 failed in 0.1s ==\n{JEST}\n{TAP}")
    assert both == ParsedReport(passed=4, failed=3, skipped=4, errors=2, failures=both.failures if both else ())
