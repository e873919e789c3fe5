"""Random shell lines: what the reader calls harmless must not start the denied program when bash runs it.

A short run is a test (`test_shell_attacks.py`); a long one: `python -m tests.command_policy.shell_fuzz SEED LINES`.
"""

import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from coretools.command_policy.line_verdict import LineDecision, judge_line
from coretools.command_policy.verdict import ProgramPolicy
from coretools.config.operator_policy import CommandPolicy, CommandRule
from coretools.errors import CommandSyntax
from tests.command_policy.marker import Marker

POLICY = ProgramPolicy(CommandPolicy(opaque="deny", rule=(CommandRule(program="denied", verdict="deny"),)))


def _pieces(text: str) -> list[str]:
    return text.split()


WORDS = _pieces(r"""
denied ls x a=b -v $x "$x" ${x} ${x:-denied} "${x:-`denied`}" $(denied) `denied` <(denied) 'denied' "denied" de'n'ied
\denied de\nied {ls,denied} {denied,} $'\\' $'\'' "\\" \' a[$(denied)] 'a[$(denied)]' $((x)) $((y+1)) $[x]
~ * den* [d]enied ! { } [[ ]]
[ ] $'denied' $"denied" ${x@P} ${!x} ${#x} ${x[0]} ${x/a/`denied`} x[0]=1 x=(denied) $1 $@ "$@" $# # \ ' " ` $ ( ) ; |
& < > 2>x >x <x >&2 2>&1 &>x >|x <>x {x}>y <<<x <<<$(denied) = == =~ -eq -f -n -a time env command builtin exec coproc
in if then fi for do done while case esac function select until f() eval test read export declare printf set local unset
@(denied) ?(x) +([0-9]) \( \) "\"" '"' "'" ${x#'`denied`'} "${x#'`denied`'}" ${x%"$(denied)"} $x$y x$(denied)y ||
&& |& ;; ;& ((x)) ((x=1)) !! % ^ : . , .. {1..3} {a..b} "{a,b}" \{denied,x\} =denied x+=1 x=denied
""")

SEPARATORS = [" "] * 12 + [
    "",
    "",
    ";",
    " ; ",
    " && ",
    " || ",
    " | ",
    " & ",
    "\n",
    "\t",
    "\\\n",
    " \\\n",
    "\r",
    "\v",
    "\u00a0",
]

SHAPES = r"""
@ & @@ && @
@ | @
( @ )
{ @; }
! @
time @
$(@)
`@`
"$(@)"
ls <(@)
x=$(@)
if @; then @; fi
while @; do break; done
case x in x) @;; esac
case @ in @) @;; esac
for x in @; do @; break; done
f() { @; }; f
[ @ ]
[[ @ ]]
test @
((@))
echo $((@))
echo ${x:-@}
echo "${x:-@}"
echo ${x#@}
cat <<E\n@\nE\n
cat <<'E'\n@\nE\n
cat <<-E\n\t@\n\tE\n@
cat <<E | @\nx\nE\n
cat <<E; @\n@\nE\n
cat > x <<E && @\n@\nE\n@
env @
command @
builtin @
exec @
read x <<< @; echo $((x))
x=@; echo $((x))
x='@'; [[ x -eq 0 ]]
x="@"; ls ${y[x]}
x='a[$(denied)]'; @
export x=@
declare x=@
printf -v x @; ((x))
ls # @\n@
ls \\n@
x=(@); ((x))
select x in @; do break; done
coproc @
ls > @
@ > x @
@ 2>&1 @
ls `ls '@'`
ls "`@`"
ls "`ls "@"`"
ls "$(cat <<E\n@\nE\n)"
(\\\n@)
ls ${x/@/@}
[[ -f @ || @ -lt @ ]]
@; @ {x}>y
x+=@; @
ls $(ls @ | @) @
cat <<E\n@ $(@) ${x:-@}\nE\n@
echo `echo "@"`
[[ @ =~ @ ]]; ((BASH_REMATCH))
ls {@,@}
set -- @; @
f() { local x=@; }; f
unset @
x[@]=1
x=([@]=1)
let @
until @; do break; done
@ || @
@\n@
@ |& @
wait @
"@"
ls '@' "@"
""".strip()


def lines(seed: int, count: int) -> Iterator[str]:
    """Yield random lines, most of them built from shapes, some with a piece removed or put in."""
    chance = random.Random(seed)
    shapes = [shape.replace("\\n", "\n") for shape in SHAPES.split("\n")]
    for _ in range(count):
        line = chance.choice(shapes)
        for _ in range(chance.choice((0, 0, 1, 2))):
            line = line.replace("@", chance.choice(shapes), 1)
        while "@" in line:
            line = line.replace("@", _words(chance), 1)
        yield _mutated(chance, line) if chance.random() < 0.4 else line


def _words(chance: random.Random) -> str:
    found = [word.replace("@", "") for word in chance.choices(WORDS, k=chance.choice((1, 1, 2, 2, 3)))]
    return "".join(f"{word}{chance.choice(SEPARATORS)}" for word in found[:-1]) + found[-1]


def _mutated(chance: random.Random, line: str) -> str:
    at = chance.randrange(len(line) + 1)
    piece = chance.choice([*WORDS, *SEPARATORS]).replace("@", "")
    return line[:at] + piece + line[at + chance.choice((0, 0, 1, 2)) :]


def judged(line: str) -> LineDecision | None:
    """Return the decision on a line, or None when it is refused."""
    try:
        return judge_line(POLICY, line)
    except CommandSyntax:
        return None


def is_harmless(decision: LineDecision | None) -> bool:
    """Whether nothing opaque and no denied program was found. A program that is only unknown does not count."""
    if decision is None:
        return False
    refused = [step for step in decision.decision.steps if step.verdict == "deny"]
    return all("is not on the list" in step.reason for step in refused)


def missed(candidates: Sequence[str], marker: Marker) -> list[str]:
    """Return the harmless ones among the lines that start the denied program."""
    return [line for line in candidates if is_harmless(judged(line)) and marker.is_started(line)]


def main() -> None:
    """Run many lines and print what was missed."""
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    with tempfile.TemporaryDirectory() as directory:
        marker = Marker(Path(directory))
        decisions = [(line, judged(line)) for line in dict.fromkeys(lines(seed, count))]
        harmless = [line for line, decision in decisions if is_harmless(decision)]
        print(len(decisions), "lines,", len(harmless), "harmless")
        for line in missed(harmless, marker):
            print("MISSED", repr(line))


if __name__ == "__main__":
    main()
