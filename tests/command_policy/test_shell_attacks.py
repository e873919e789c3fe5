"""Ways to start a denied program from a shell line, each run by a real bash (docs/specs/shell-lines.md)."""

import random
import shutil

import pytest

from coretools.command_policy.line_verdict import judge_line
from coretools.command_policy.verdict import ProgramPolicy
from coretools.config.operator_policy import CommandPolicy, CommandRule
from tests.command_policy import shell_fuzz
from tests.command_policy.marker import Marker

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")

POLICY = ProgramPolicy(CommandPolicy(opaque="deny", rule=(CommandRule(program="denied", verdict="deny"),)))

NAMED = r"""
denied
x=1 denied
>x denied
2>x denied y
true; denied
true && denied
false || denied
true | denied
true |& denied
denied & wait
! denied
time denied
time -p denied
(denied)
{ denied; }
if denied; then :; fi
if true; then denied; fi
if false; then :; else denied; fi
if false; then :; elif denied; then :; fi
while denied; do break; done
until false; do denied; break; done
for x in a; do denied; done
for x in `denied`; do :; done
for ((x=0;x<1;x++)); do denied; done
echo 1 | select x in a; do denied; break; done
case x in x) denied;; esac
case x in x) ;;& *) denied;; esac
case `denied` in x) ;; esac
case x in $(denied)) ;; esac
f() { denied; }; f
function f { denied; }; f
f() (denied); f
f() { :; } >`denied`; f
true() { denied; }; true
export -f nothing; f() { denied; }; export -f f; f
echo $(denied)
echo `denied`
echo "$(denied)"
echo "a`denied`b"
echo "$(echo "$(denied)")"
echo ${x:-$(denied)}
echo "${x-"$(denied)"}"
x=$(denied)
x=(a $(denied))
x=`denied` true
cat < <(denied)
cat x > >(denied); wait $!
cat <<<$(denied)
true > $(denied)
cat <<E\n$(denied)\nE
cat <<E | denied\nE
cat <<E\nE\ndenied
cat <<'E'\nE\ndenied
cat <<-E\n\tE\ndenied
cat <<"E" && denied\n$(true)\nE
'denied'
"denied"
\denied
''denied
$'denied'
$'\x64enied'
$'\144enied'
command denied
command -- denied
builtin command denied
exec denied
exec -a ls denied
exec -ca ls denied
env denied
env x=1 denied
env -S denied
nohup denied
timeout 5 denied
find . -maxdepth 0 -exec denied ;
find . -maxdepth 0 -exec env denied {} +
echo x | xargs denied
true \\n| denied
true # ;\ndenied
true; \\n denied
[[ x = x ]] && denied
[ x = x ] && denied
((1)) && denied
function denied { :; }; command denied
enable_() { denied; }; enable_
command_not_found_handle() { denied; }; nosuchprogram
>&-denied
"""
"""Lines in which the program is found. `\n` is a newline, `\t` a tab, a single `;` after `-exec` is escaped."""

HIDDEN = r"""
$'denied\0x'
$"denied"
x=denied; $x
x=denied; ${x}
x=(denied); "${x[@]}"
x=(ls denied); ${x[1]}
set -- denied; "$@"
set -- denied; $1
x=; $x denied
$(:) denied
`echo denied`
${x:-denied}
${x-denied}
de$()nied
d[e]nied() { :; }; "${PATH%%:*}"/denied
"${PATH%%:*}"/de*ed
~/../programs/denied
cd ../programs; ./denied
echo "${x:-`denied`}"
: ${x:=`denied`}
cat <<E; denied\nE
{denied,}
{denied,x}
de'n'"i"\ed
eval denied
eval "den"ied
builtin eval denied
command eval denied
trap denied EXIT
trap denied DEBUG; :
echo denied > f; . ./f
echo denied > f; source f
echo denied > f; bash f
echo denied | bash
bash -c denied
/proc/self/exe -c denied
"$BASH" -c denied
bash <<E\ndenied\nE
sh -c denied
echo denied > f; BASH_ENV=f bash -c :
echo denied > f; export BASH_ENV=f; bash -c :
echo 'denied' > f; env BASH_ENV=f bash -c :
mapfile -C denied -c 1 x <<<y
compgen -C denied x
compgen -W '$(denied)' x
PS4='$(denied)'; set -x; :
read PS4 <<<'$(denied)'; set -x; :
printf -v PS4 %s '$(denied)'; set -x; :
hash -p "${PATH%%:*}"/denied ls; ls
BASH_CMDS[ls]="${PATH%%:*}"/denied; ls
shopt -s expand_aliases\nalias x=denied\nx
shopt -s expand_aliases\nBASH_ALIASES[x]=denied\nx
mkdir p; echo 'denied' > p/ls; cat p/ls > p/x; PATH=p:$PATH; . x
coproc denied; wait
coproc { denied; }; wait
jobs -x denied
let 'x=a[$(denied)]'
echo {1..$(denied)}
[ a || denied ]
[ a | denied ]
[ a & denied ]; wait
[[ a =~ x`denied` ]]
[[ x = a`denied` ]]
x=a; echo ${x^^`denied`}
echo "${x:-'$(denied)'}"
x=a; echo ${x#'a'`denied`}
case a in [`denied`]) ;; esac
de\\nnied
"$\\n(denied)"
cat <<E\n`denied`\nE
cat <<E\n$\\n(denied)\nE
cat <<EF\nE\\nF\ndenied\nEF
cat <<\E\nE\ndenied
cat <<E"F"\nEF\ndenied
cat <<A <<B\nA\nB\ndenied
cat <<E\n${x:-'$(denied)'}\nE
echo `echo '`; denied #' `
echo `echo \`denied\``
((x)) || ! ((denied) )
((denied); true)
! ! denied
time ! denied
time a=b denied
2>time\\n a=b denied
x='a[$(denied)]'; ((x))
x='a[$(denied)]'; echo $((x))
x='a[$(denied)]'; (\\n(x))
x='a[$(denied)]'; [[ y == x || x -gt 0 ]]
if true; then\\n denied; fi
{PATH}>x; ls; denied
echo '$(denied)' | { read -r PS4; set -x; ls; }
x='a[$(denied)]'; echo $[x]
x='a[$(denied)]'; y=$((x+1))
echo $'\\'; denied; echo \'\ndenied #'
x='a[$(denied)]'; [[ x -eq 0 ]]
x='a[$(denied)]'; y=abc; echo ${y:x:1}
x='a[$(denied)]'; y=(1); echo ${y[x]}
x='a[$(denied)]'; y[x]=1
x='a[$(denied)]'; y=([x]=1)
x='a[$(denied)]'; for ((;x;)); do :; done
x='a[$(denied)]'; y=x; ((y))
x='a[$(denied)]'; y=$x; ((y))
x='-v a[$(denied)]'; [ $x ]
x='-v a[$(denied)]'; [ -n "" ] || test $x
x='-p a[$(denied)]'; true & wait -n $x
x='-va[$(denied)]'; printf $x b
read x <<<'a[$(denied)]'; ((x))
read <<<'a[$(denied)]'; ((REPLY))
mapfile -t x <<<'a[$(denied)]'; ((x))
printf -v x %s 'a[$(denied)]'; ((x))
for x in 'a[$(denied)]'; do ((x)); done
select x in a; do ((REPLY)); break; done <<<'a[$(denied)]'
set -- 'a[$(denied)]'; (($1))
f() { echo $(($1)); }; f 'a[$(denied)]'
export x='a[$(denied)]'; ((x))
declare x='a[$(denied)]'; ((x))
[[ 'a[$(denied)]' =~ .* ]]; ((BASH_REMATCH))
echo 'a[$(denied)]'; ((_))
RANDOM='a[$(denied)]'
SRANDOM='a[$(denied)]'
HISTCMD='a[$(denied)]'
OPTIND='a[$(denied)]'
declare -i x='a[$(denied)]'
declare -a 'x=($(denied))'
x='($(denied))'; y=(1); declare y="$x"
x='($(denied))'; declare -a y="$x"
x='($(denied))'; f() { local -a y; local y="$x"; }; f
test -v 'a[$(denied)]'
[[ -v 'a[$(denied)]' ]]
a=(1); unset 'a[$(denied)]'
read 'a[$(denied)]' <<<x
printf -v 'a[$(denied)]' x
true & wait -n -p 'a[$(denied)]'
: {a[$(denied)]}>x
x='$(denied)'; echo ${x@P}
x='a[$(denied)]'; echo ${!x}
f() { "$@"; }; f denied
f() { env "$@"; }; f denied
f() { command "$@"; }; f denied
f() { exec "$1"; }; f denied
x=denied; env $x
x=denied; command $x
x=denied; timeout 5 "$x"
x='env denied'; exec $x
echo denied | xargs env
find . -maxdepth 0 -exec sh -c denied ;
{$x,denied}
x=a; {de,}{nied,$x}
: >&'$(denied)'
: >&'`denied`'
x='$(denied)'; : >&$x
x='$(denied)'; : >&"$x"
: 1>&"\$(denied)"
: >&\`denied\`
: >&'<(denied)'
: >&'${x:-$(denied)}'
exec >&'$(denied)'
{ :; } >&'$(denied)'
f() { :; } >&'$(denied)'; f
>& -denied x
<& -denied x
[[ x<(denied) ]]
[[ x>(denied) ]]
[[ x && y<(denied) -eq 0 ]]
cat << 'E'x\nEx\ndenied\nE\n
cat << "E"x\nEx\ndenied\nE\n
de\\n\\nnied
mkdir 1=; 1=/../../programs/denied
de\\n\\n\\nnied x
"""
"""Lines in which only the running shell knows what starts: each must be opaque."""

HARMLESS = r"""
cd src && ls -la | grep -v test > out.txt 2>&1
for f in *.c; do echo "$f: $(wc -l < "$f")"; done
if [ -f x ] && [[ $y == *.py ]]; then cat x; else touch x; fi
while IFS= read -r line; do echo "$line"; done < x
cat > f.txt <<'E'\ndenied `denied` $(denied)\nE\n
cat <<E\n$x ${y:-a} and 'quotes'\nE
ls -la 2>/dev/null || true
echo 'denied; $(denied)' "denied" \; denied
x=5; i=$((x + 1)); [ "$i" -gt 3 ] && echo "$i"
diff <(sort a) <(sort b)
set -euo pipefail; export LANG=C; cat x
[ "$(cat x)" = denied ] || echo "not denied"
ls | head -n 5 # denied
sleep 1 & PID=$!; wait $PID
command -v denied
git log --oneline | head -5; git status
[[ $x =~ ^(a|b)+$ ]] && ls
grep -c "{a}>b" < x; cat <<E\n<b>{name}</b>\nE
(cd a && ls); { ls b; } > c
f() { local x="$1"; echo "$x"; }
x=(a b c); echo "${x[@]}" "${#x[@]}"
case "$x" in a|b) ls;; *) cat y;; esac
mkdir -p a/{b,c} && touch a/{1..3}.txt
test -z "$x" && echo empty
"""
"""Ordinary lines, which the reader must understand completely."""


def table(text: str) -> list[str]:
    lines = text.strip().split("\n")
    return [
        line.replace(r"\n", "\n").replace(r"\t", "\t").replace(" ;", r" \;")
        if "-exec" in line
        else line.replace(r"\n", "\n").replace(r"\t", "\t")
        for line in lines
    ]


@pytest.fixture(scope="module")
def marker(tmp_path_factory: pytest.TempPathFactory) -> Marker:
    return Marker(tmp_path_factory.mktemp("marker"))


@pytest.mark.parametrize("part", range(4))
def test_no_line_that_starts_a_denied_program_counts_as_harmless(marker: Marker, part: int) -> None:
    """shell-10: whatever bash starts is judged or opaque, by effect."""
    assert len(table(NAMED) + table(HIDDEN)) > 180
    lines = (table(NAMED) + table(HIDDEN))[part::4]
    wrong = {line: (judge_line(POLICY, line).verdict, marker.is_started(line)) for line in lines}
    assert {line: found for line, found in wrong.items() if found != ("deny", True)} == {}


def test_programs_in_plain_sight_are_listed(marker: Marker) -> None:
    """shell-4: in all branches, subshells, substitutions and functions."""
    for line in table(NAMED):
        found = judge_line(POLICY, line)
        rules = [step.rule for step in found.decision.steps]
        assert 1 in rules, line


def test_what_only_the_running_shell_knows_is_opaque() -> None:
    """shell-2, shell-6: without a rule for the program, the line is refused for a piece that it names."""
    policy = ProgramPolicy(CommandPolicy(opaque="deny"))
    for line in table(HIDDEN):
        decision = judge_line(policy, line).decision
        assert decision.verdict == "deny", line
        assert "opaque =" in decision.decisive.reason, line


def test_ordinary_lines_are_understood() -> None:
    """shell-5: no piece is opaque in what people write every day."""
    policy = ProgramPolicy(CommandPolicy(opaque="deny", rule=(CommandRule(program="denied", verdict="deny"),)))
    assert [
        (line, judge_line(policy, line).decision.decisive)
        for line in table(HARMLESS)
        if judge_line(policy, line).verdict != "allow"
    ] == []


def test_every_word_of_a_program_is_known() -> None:
    """shell-5, shell-6: none is lost beside a redirect, and rules on arguments see it."""
    rule = CommandRule(program="denied", arguments=("-9", "**"), verdict="deny")
    policy = ProgramPolicy(CommandPolicy(opaque="deny", rule=(rule,)))
    for line in ("denied -9>x", "denied -9 >x", "denied -9>&1", "denied >x -9>y", "denied >& -9", "denied -9<x"):
        assert judge_line(policy, line).verdict == "deny", line
    rule = CommandRule(program="denied", arguments=(), verdict="deny")
    policy = ProgramPolicy(CommandPolicy(opaque="deny", rule=(rule,)))
    for line in ("denied\\\n 2>x", "denied <<<$'a'\\b", "denied <<<{a,b}", "denied >{a,b}"):
        assert judge_line(policy, line).verdict == "deny", line
    for line in ("{denied;}", "!{#", "{}", "ls x\v", "[w]", "[x ]", "[[w]]", "[ w]", "[[ w]]"):
        assert judge_line(POLICY, line).opaque, line


@pytest.mark.parametrize("start", ["true | ", "2>x ", "true |& ", "true |\n"])
def test_time_is_a_program_where_it_is_not_reserved(start: str) -> None:
    """shell-7: bash starts the program then, which has options of its own."""
    for options in ("", "-p ", "-f x ", "-o x -- "):
        found = judge_line(POLICY, f"{start}time {options}denied x")
        assert 1 in [step.rule for step in found.decision.steps], options


@pytest.mark.parametrize("seed", [11, 12])
def test_random_lines_that_count_as_harmless_start_nothing_denied(marker: Marker, seed: int) -> None:
    """shell-11: the reader and bash agree on random lines; a longer run is `tests/command_policy/shell_fuzz.py`."""
    harmless = [line for line in shell_fuzz.lines(seed, 1500) if shell_fuzz.is_harmless(shell_fuzz.judged(line))]
    assert len(harmless) > 100
    assert shell_fuzz.missed(random.Random(seed).sample(harmless, 60), marker) == []
