"""Spellings that must not get past a rule (docs/specs/policy.md)."""

import os
import random
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from coretools.command_policy.verdict import ProgramPolicy
from coretools.config.operator_policy import CommandPolicy, CommandRule, Verdict

DIRECT = """
rm x
/bin/rm x
/usr/bin/../bin//rm x
./rm x
/tmp/rm x
RM x
rm.exe x
'rm ' x
\uff52\uff4d x
"""

WRAPPED = """
env rm x
env - rm x
env -i -u A rm x
env -iu A rm x
env --unset=A --chd /tmp rm x
env LANG=C rm x
env PATH=/tmp rm x
env -S 'rm x'
env -S'rm x'
env -vS 'rm x'
env --split='-i rm x'
env -S '-S rm' x
nice rm x
nice -5 rm x
nice --adj 5 rm x
nice -n5 -- rm x
nohup rm x
setsid -fw rm x
timeout 5 rm x
timeout -k 1 --sig KILL 5 rm x
stdbuf -oL rm x
time -f %e -o /dev/null rm x
ionice -c 3 rm x
taskset -c 0 rm x
flock /tmp/lock rm x
flock -n /tmp/lock -c rm
chroot / rm x
sudo rm x
sudo -u root -- rm x
sudo -uroot A=b rm x
doas -u root rm x
busybox rm x
busybox env rm x
toybox rm x
command rm x
xargs rm
xargs -0n1 -P4 -- rm
xargs -I{} rm {}
xargs --max-a=1 rm
gxargs rm
strace -f -o /tmp/log rm x
unshare -r rm x
setarch -R rm x
prlimit --nofile=5 rm x
ld.so /bin/rm x
/lib64/ld-linux-x86-64.so.2 /bin/rm x
qemu-x86_64 /bin/rm x
npx rm x
uv run -- rm x
poetry run rm x
docker run -v /:/host image rm x
ssh host rm x
env nice nohup setsid timeout 5 env -S 'xargs rm'
env --unknown-option value rm x
timeout 5 --odd rm x
"""

FLAGGED = """
find . -exec rm {} ;
find . -execdir /bin/rm {} +
find . -ok rm {} ;
find . -okdir env rm {} ;
find . -name x -delete
find . -name -exec -exec rm {} ;
find . -exec echo {} ; -exec rm {} ;
fd x -x rm
fd -Hxrm
fd x --exec-b=rm
tar -cf a.tar -I rm .
tar -cIrm -f a.tar .
tar cIf rm a.tar .
tar -H --use-compress-program=rm -cf a.tar .
tar -xf a.tar --use-comp 'rm x'
tar -xf a.tar --to-com=rm
tar -cf a.tar . --checkpoint=1 --checkpoint-act=exec=rm
tar -cf a.tar . --checkpoint-action exec=rm
tar -cf a.tar -- --checkpoint-action=exec=rm
rg --pre rm x
rg --pre=rm x
rg -e -- --pre rm
rsync -e rm a b
rsync -averm a b
rsync --rs=rm a b
sort --compress-prog=rm x
split --filter=rm x
zip -TT rm a b
zip -rTTrm a b
man -Prm ls
gcc -wrapper rm,-f x.c
x86_64-linux-gnu-gcc-12 -wrapper rm x.c
go test -exec rm ./...
wget --use-ask=rm http://x
git grep -Orm x
git grep -nOrm x
git grep --open-files=rm x
git bisect run rm x
git rebase -x rm main
git rebase --ex=rm main
git submodule foreach rm x
git submodule --quiet foreach --recursive rm x
git difftool -x rm
git fetch --upload-p=rm origin
git clone -urm a b
git push -u --receive-pack=rm origin
git ls-remote --exec rm origin
git -C sub --no-pager grep -Orm x
"""

OPAQUE = """
sh -c 'rm x'
bash -lc 'rm x'
bash script
sh
busybox sh -c 'rm x'
env -i bash -c 'rm x'
xargs sh -c 'rm x'
xargs -I{} {}
xargs env
xargs git
find . -exec sh -c 'rm x' ;
find . -exec {} ;
python -c 'import os'
python3.12 -m this
python3 -Ic 'import os'
python3
pypy3 x.py
node -e x
node --eval=x
perl -e 'unlink "x"'
perl -lane 'unlink'
ruby -e x
php -r x
lua x.lua
awk 'BEGIN{system("rm x")}'
gawk 'BEGIN{"rm x"|getline}'
mawk 'BEGIN{f="system";@f("rm x")}'
awk -f x.awk
sed '1e rm x' x
sed 's/.*/rm x/e' x
sed -n -e p -e 's,a,b,e' x
sed -f x.sed x
sed --expr='1e rm' x
vim -c '!rm x'
vi +!rm
ed x
less x
gdb -ex 'shell rm x'
man -P 'rm x; true' ls
make
make SHELL=/bin/rm
make -f x
cargo test
npm run build
yarn x
pytest
go run .
cmake -P x
env A=b ls
env -S 'rm${X}' ls
env LD_PRELOAD=./x.so ls
sudo -s
sudo -i
./script
/tmp/script
sub/dir/rm-like
/usr/bin/../../tmp/x
git -c core.pager=x log
git -c alias.x=!rm x
git -ccore.fsmonitor=x status
git -c CORE.SSHCOMMAND=x fetch
git --config-env=core.pager=X log
git -c pager.log=x log
git log --help
env GIT_PAGER=x git log
env -u GIT_PAGER git log
env --unset=GIT_EDITOR git commit
env -i git log
env - git log
env -S '-u GIT_PAGER git log'
find . -exec env -i git log ;
git rebase -x 'env -i git log' main
busybox env -u LESSSECURE ls
git --exec-path=/tmp status
git --git-dir=/tmp/x status
git --odd status
git an-alias
git filter-branch --tree-filter 'rm x'
git clone -c core.sshCommand=x a b
git clone --conf core.sshCommand=x a b
git clone --template=/tmp/t a b
git archive --remote=ext::sh HEAD
git fetch evil://host/x
git-grep -Ox y
perl5.36-x86_64-linux-gnu -e x
bash-5.2 -c x
vim.basic x
busybox.static sh -c x
npm test --script-shell=./x
rustc -C linker=./x a.rs
gcc @arguments
git fetch ext::sh
git config alias.x '!rm'
git config -e
git merge -s evil x
git remote-ext x 'rm x'
git rebase --exec 'rm x; true' main
tar -cf a.tar -I 'rm x; true' .
tar -cf a.tar . --checkpoint-action='exec=rm x; true'
rsync -e 'sh -c "rm x"' a b
ssh host 'rm x'
scp -o ProxyCommand=x a b:
curl -K x
openssl x -engine ./x.so
gcc -fplugin=./x.so x.c
docker run image
flock /tmp/lock -c 'rm x; true'
prove -e rm x.t
pdb3 -c '!import os' x.py
pydoc3 ./x.py
dpkg-architecture -c rm x
gpg-agent --daemon -- rm x
fakeroot-sysv rm x
newgrp
c99 -wrapper rm x.c
patch -i x.diff
ldd ./x
ls2 x
LS
/usr/local/bin/unheard-of
env unheard-of
xargs -n1 unheard-of
find . -exec env {} ;
fd x -x env
rg --pre env rm x
tar -cf a.tar -I env rm
git ls-remote --upload-pack=env rm
git send-pack --exec unheard-of a
git config core.fsmonitor '--get; rm x'
git config alias.l -l
git rebase --cont
git maintenance start
gcc -Wl,-plugin,./x.so x.c
gcc -E -Wp,-fplugin=./x.so x.c
gcc --plugin=./x.so x.c
g++ -fmodules-ts '-fmodule-mapper=|rm x' -c x.cc
g++ -fmodules-ts -Wp,-fmodule-mapper=./x -c x.cc
gcc -fuse-ld=./x x.c
clang --config=./x x.c
tar -cf host:x .
rsync -a host:x .
cpio -o -O host:x
chroot d ls
sudo -R d ls
sudo --chroot=d ls
env -P /tmp ls
tput -T x init
busybox tcpsvd 0 1 ls
sed 'p;e'
sed -n '/x/e rm'
awk -- 'BEGIN{system("rm x")}'
git pull -s rm
git clone -c core.pager=x a b
git remote add x ext::sh
git fetch fd::3
cp.real a b
/usr/bin/../bin/ls2
/usr/bin/x/ls
nm --plugin ./x.so x.o
tree -R -L 1
openssl req -config ./x.cnf
"""

HARMLESS = """
ls -la
echo rm
grep -r rm .
cat rm
git status
git log --oneline -5 -- rm
git log -n 5 --format=%h
git -C sub commit -m rm
git -c user.name=x -c color.ui=never commit -s -m x
git push -u origin main
git clean -x
git fetch https://host/x.git
git clone git@host:x/y.git
gcc -O2 -c -o x.o x.c
sha256sum x
git diff -O order.txt
git config --get core.editor
git config user.name x
git grep -n rm
find . -name rm -print
sed -n 1,20p x
sed -i s/a/b/g x
sed -E -e 's|[a-z]+|\\1|' -e '/x/d' x
awk '{print $1}' x
awk -F: '$1 == "x" || $2 > 3 {print $2}' x
tar xzf a.tgz
tar -czf a.tgz --totals .
rg -n --pretty --pre-glob x pattern
sort -k1,1 -u x
xargs echo
xargs -n1 grep rm
env LANG=C ls
env -u LANG ls
git log -h
python --version
make --version
zip -r a.zip .
rsync -av a b
/usr/bin/wc -l x
jq . x
tail -f x
diff -u a b
timeout 5 nice cat x
cp -r a b
git config --type bool --get a.b
git rebase -x 'ls -l' main
g++-12 -Wall -Wl,-rpath,/x -o x x.cc
python3.12 --version
"""


PUSHES = """
git push origin
git -C sub push origin
git send-pack ../other main
git -c user.name=x SEND-PACK ../other main
git http-push https://host/x main
git receive-pack ../other
git remote-https origin https://host/x
git-push origin
/usr/lib/git-core/git-send-pack ../other main
env git-receive-pack ../other
xargs git send-pack
"""

FETCHES = """
git fetch origin
git fetch-pack ../other main
git http-fetch -a main https://host/x
git upload-pack ../other
git remote-ext origin x
git-upload-pack ../other
timeout 5 git fetch-pack --all ../other
"""


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def policy(*rules: tuple[Verdict, str], default: Verdict = "allow", opaque: Verdict | None = None) -> ProgramPolicy:
    made = []
    for verdict, line in rules:
        program, *words = shlex.split(line)
        made.append(CommandRule(program=program, verdict=verdict, arguments=tuple(words) or None))
    return ProgramPolicy(CommandPolicy(default=default, opaque=opaque, rule=tuple(made)))


def test_a_denied_program_is_denied_however_it_is_reached() -> None:
    """policy-3, policy-7, policy-8: code is allowed here, so that only the rule for rm can refuse."""
    for line in lines(DIRECT + WRAPPED + FLAGGED):
        decision = policy(("deny", "rm"), opaque="allow").decide(shlex.split(line))
        assert (decision.verdict, decision.decisive.rule) == ("deny", 1), line


@pytest.mark.parametrize(("transfer", "text"), [("push", PUSHES), ("fetch", FETCHES)])
def test_a_denied_transfer_of_git_is_denied_by_its_plumbing_too(transfer: str, text: str) -> None:
    """policy-22: what implements a push or a fetch; a rule that allows one allows none of the others."""
    denied = policy(("deny", f"git {transfer}"), opaque="allow")
    allowed = policy(("allow", f"git {transfer} **"), default="deny", opaque="allow")
    for line in lines(text):
        words = shlex.split(line)
        assert (denied.decide(words).verdict, denied.decide(words).decisive.rule) == ("deny", 1), line
        assert (allowed.decide(words).verdict == "allow") == line.startswith(f"git {transfer} "), line
    for line in ("git status", "git remote -v", "git pack-objects x", "git commit-tree x", "git ls-remote origin"):
        assert denied.decide(shlex.split(line)).verdict == "allow", line


def test_another_denied_program_is_no_exception() -> None:
    """policy-7: the operator decides what is denied, not a built-in list."""
    for line in lines(WRAPPED):
        words = [word.replace("rm", "curl") for word in shlex.split(line)]
        words = ["flock", "/tmp/lock", "curl"] if words[:1] == ["flock"] else words
        assert policy(("deny", "curl"), opaque="allow").decide(words).verdict == "deny", line


def test_opaque_code_gets_the_verdict_for_it() -> None:
    """policy-9: interpreters, shell text, project code, unknown files and git's own ways to start programs."""
    for line in lines(OPAQUE):
        words = shlex.split(line)
        assert policy(opaque="deny").decide(words).verdict == "deny", line
        assert policy(opaque="ask").decide(words).verdict == "ask", line
        assert policy(("deny", "no-such-program")).decide(words).verdict == "allow", line


def test_an_allow_list_never_allows_code_by_the_name_of_its_program() -> None:
    """policy-9: even with a rule for every program name."""
    for line in lines(OPAQUE):
        words = shlex.split(line)
        everything = policy(("allow", "*"), default="deny")
        assert everything.decide(words).verdict == "deny", line
        assert everything.decide(["ls", "x"]).verdict == "allow", line


def test_what_starts_nothing_is_not_taken_for_code() -> None:
    """policy-9: operators would switch off a policy that refuses everyday commands."""
    for line in lines(HARMLESS):
        decision = policy(("deny", "rm"), opaque="deny").decide(shlex.split(line))
        assert decision.verdict == "allow", decision.decisive.reason


def test_a_program_on_no_list_is_code_until_a_rule_names_it() -> None:
    """policy-20: by its exact name or a path; not by a wildcard, nor by another form of a listed name."""
    words = ["unheard-of", "x"]
    for rules, expected in [
        ((), "deny"),
        ((("allow", "*"),), "deny"),
        ((("allow", "unheard-*"),), "deny"),
        ((("allow", "unheard-of"),), "allow"),
        ((("allow", "unheard-of x"),), "allow"),
        ((("allow", "unheard-of y"),), "deny"),
        ((("allow", "unheard-of"), ("deny", "unheard-of x")), "deny"),
    ]:
        for default in ("allow", "deny"):
            assert policy(*rules, default=default, opaque="deny").decide(words).verdict == expected, rules
    assert policy(("allow", "/usr/bin/*"), opaque="deny").decide(["/usr/bin/unheard-of"]).verdict == "allow"
    assert policy(("deny", "rm")).decide(words).verdict == "allow"
    assert policy(("allow", "ls"), default="deny", opaque="deny").decide(["ls2"]).verdict == "deny"


@pytest.mark.parametrize(
    "line",
    [
        *("git status", "git status --short", "git status -s -- a"),
        *(
            "env git status",
            "xargs ls",
            "find . -exec git status ;",
            "python build.py now",
            "npm test",
            "make test -j4 -s",
        ),
    ],
)
def test_an_allow_list_allows_its_commands(line: str) -> None:
    """policy-6: word by word, the rest by `**`, and wrappers that have their own rules."""
    assert allow_list().decide(shlex.split(line)).verdict == "allow"


def test_an_allow_list_allows_nothing_else() -> None:
    """policy-5, policy-6, policy-9, policy-10: paths, case, similar names, options before, unseen words."""
    for line in (
        *("git", "git log", "git push", "git stat", "git STATUS", "Git status", "git -C x status", "git --bare status"),
        *(
            "./git status",
            "/tmp/git status",
            "/usr/bin/git status",
            "\uff47it status",
            "gi\u0442 status",
            "'git ' status",
        ),
        *("git -c core.fsmonitor=x status", "git -c alias.status=!x status", "git --exec-path=. status"),
        *("env git log", "env PATH=. git status", "env -S 'git log'", "env GIT_DIR=x git status", "env sh"),
        *("xargs git status", "xargs git", "xargs env git status", "xargs -I{} git {}", "xargs -I{} {} status"),
        *("find . -exec git push ;", "find . -exec ls ; -exec rm {} ;", "find . -delete", "sudo git status"),
        *("nice git status", "git status ; rm x", "python '-cimport os #build.py'", "python -c build.py"),
        *("python ../build.py", "python", "python -m build.py", "python -- build.py", "python -i build.py"),
        *("make test -E x", "make test --ev=x", "make test --makef x", "make test -kf x", "make test @x"),
        *("npm test --script-shell=./x", "npm test --script-sh ./x", "npm run x"),
        *("make test SHELL=./x", "make test -f x", "make test --eval=x", "make -C x test", "make"),
    ):
        decision = allow_list().decide(shlex.split(line))
        # `;` is an argument here: no shell reads it, and git takes it for a path.
        assert decision.verdict == ("allow" if " ; rm" in line and line.startswith("git") else "deny"), line


def allow_list() -> ProgramPolicy:
    return policy(
        ("allow", "git status **"),
        *[("allow", name) for name in ("env", "xargs", "find", "ls")],
        ("allow", "python build.py **"),
        ("allow", "make test **"),
        ("allow", "npm test **"),
        default="deny",
    )


BEFORE = """
env
env -i -u A
env -S
env LANG=C
nice -n 5
nice -5
nohup
setsid -w
timeout -k 1 5
stdbuf -o L
time -p
ionice -c 2
taskset 1
flock -n lock
chroot /x
sudo -u root
doas
busybox
xargs -n 1
xargs -I{} --
find . -exec
strace -f -o log
npx
"""


def test_nested_wrappers_hide_nothing() -> None:
    """policy-7: all wrappers, in any order, up to the maximum depth and beyond."""
    for seed in range(60):
        pick = random.Random(seed)
        words = [word for line in pick.choices(lines(BEFORE), k=pick.randint(1, 20)) for word in shlex.split(line)]
        assert policy(("deny", "rm"), opaque="allow").decide([*words, "/bin/rm", "-rf", "x"]).verdict == "deny", seed


REAL = """
env -S 'MARK x'
env -iS MARK
nice --adj=1 MARK
timeout -k 1 --sig KILL 5 MARK
xargs -a /dev/null MARK
find . -maxdepth 0 -name . -exec MARK {} ;
find . -maxdepth 0 -execdir MARK {} +
tar -cf /dev/null . --checkpoint=1 --checkpoint-act=exec=MARK
tar cIf MARK out.tar .
tar -cIMARK -f out.tar .
tar --use-comp MARK -cf out.tar .
git -c alias.x=!MARK x
git -c core.fsmonitor=MARK status
git grep -OMARK needle
git grep --open-files=MARK needle
git ls-remote --upload-p=MARK .
git clone -uMARK . ../copy
rg --pre MARK needle .
rg --pre=MARK needle .
sh -c MARK
awk 'BEGIN{system("MARK")}'
sed '1e MARK' file
sed 's,.*,MARK,e' file
perl -e 'system "MARK"'
split --filter=MARK file
sort --compress-prog=MARK -S 1b --batch-size=2 many
setsid -w MARK
flock lock MARK
flock lock -c MARK
make --eval='$(shell MARK)'
prove -e MARK file
dpkg-architecture -c MARK
pdb3 -c '!import os; os.system("MARK")' file
git send-pack --exec MARK . HEAD
git ls-remote --upload-pack=env MARK
fakeroot-sysv MARK
"""


@pytest.mark.parametrize("line", lines(REAL))
def test_the_policy_predicts_what_really_starts(line: str, tmp_path: Path) -> None:
    """policy-7, policy-8, policy-9: the real program starts the marker, and the policy predicts it."""
    program = shlex.split(line)[0]
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}")
    mark = tmp_path / "mark"
    mark.write_text(f"#!/bin/sh\n: > {tmp_path}/ran\n")
    mark.chmod(0o755)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_text("needle\n")
    (tree / "many").write_text("".join(f"{number}\n" for number in range(300)))
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    subprocess.run(["git", "add", "file"], cwd=tree, check=True)
    words = [word.replace("MARK", str(mark)) for word in shlex.split(line)]
    subprocess.run(words, cwd=tree, capture_output=True, stdin=subprocess.DEVNULL, timeout=60, env=dict(os.environ))
    assert (tmp_path / "ran").exists(), "the spelling does not work on this machine"
    assert policy(("deny", str(mark)), opaque="deny").decide(words).verdict == "deny"
