"""Lists of programs by what they start, and readers for interpreters, build tools, awk and sed.

Pure. A program on no list counts as opaque code, so a missing name costs a refusal and opens nothing (docs/adr/0013).
The other lists decide how the words of a program are read. Their names are those of `Subcommand`: lower
case, no directory, with and without a version at the end.

Nothing here reads the text of a program, except for the few commands of awk and sed that start nothing.
"""

import re
from collections.abc import Iterator

from coretools.command_policy.getopt import Operand, Options
from coretools.command_policy.subcommand import Finding, OpaqueCode, Words


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SELF_CONTAINED = _names(
    """
    [ b2sum base32 base64 basename basenc cat chgrp chmod chown cksum comm cp csplit cut date dd df dir dircolors
    dirname du echo expand expr factor false fmt fold groups head hostid id join link ln logname ls md5sum mkdir
    mkfifo mknod mktemp mv nl nproc numfmt od paste pathchk pinky pr printenv printf ptx pwd readlink realpath rm
    rmdir seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep stat stty sum sync tac tail tee test
    touch tr true truncate tsort tty uname unexpand uniq unlink users vdir wc who whoami yes grep cmp diff locate
    plocate cal col colcrm colrm column fallocate findmnt getopt hd hexdump ipcs isosize kill last logger look lsblk
    lscpu lsipc lslocks lsmem lsns mcookie mountpoint namei ncal rename.ul rev ul uuidgen uuidparse whereis free
    killall pgrep pidof pidwait pkill pmap ps pstree pwdx uptime vmstat w bunzip2 bzcat bzip2 gzip lz4 lzma unlzma
    unxz unzip unzstd xz xzcat zipinfo zstd zstdcat zstdmt chattr getfacl getfattr lsattr setfacl setfattr clear dig
    dos2unix file getconf getent host hostname iconv jq locale objdump ping readelf strings unix2dos which
    xmllint xxd
    """
)
"""Programs that start no other one, whatever their words (GNU coreutils 9.1, grep 3.8, diffutils 3.8, util-linux 2.38,
procps 4.0, psmisc 23.6, binutils 2.40, libxml2 2.9, jq 1.6, Info-ZIP). Some run a fixed helper: `file -z`, `iconv` and
`locale` gzip, `diff -l` pr, `ps` a debugger when it crashes; `which` is a shell script. Of those binaries in
Debian 12 only these and `pidof` import exec, system or posix_spawn (readelf --dyn-syms)."""

COMPILER = re.compile(
    r"(?:[a-z0-9_]+-linux-(?:gnu|musl)[a-z0-9]*-)?(?:gcc|g\+\+|cpp|gfortran|clang|clang\+\+)(?:-[0-9]+)?"
)
"""Names of compilers whose options `flags` lists: `gcc`, `clang++-14`, `x86_64-linux-gnu-gcc-12`."""

INTERPRETERS = _names(
    """
    ash bash csh dash elvish es fish hush ion ksh lksh mksh nu osh pdksh posh pwsh powershell rbash rc sash sh tcsh
    xonsh yash ysh zsh cmd bsh clojure crystal deno elixir erl escript forth gdl ghci groovy guile gforth iex ipython
    ipython3 irb janet java jjs jruby jshell js julia kotlin kotlinc lisp lua luajit luatex micropython mono node
    nodejs ocaml octave osascript perl php phpdbg picolisp pry psysh pypy python pythonw qjs r racket rhino rscript
    ruby runghc runhaskell sbcl scala scheme smlnj stack swift swipl tcc tclsh ts-node tsx wish wolframscript wasmtime
    wasmer zx bc dc ed ex emacs emacsclient gdb gnuplot joe kak less lldb m4 micro more most mutt nano nvi nvim pico
    ack bat batcat delta fzf man pdb pdb3 prove pydoc pydoc3 sdiff
    red rvim rview rvi vi view vim vimdiff visudo vipw sudoedit ftp lftp mysql mariadb psql sqlite sqlite3 telnet tftp
    """
)
"""Programs that run code from their words, a file or standard input, or open a pager or editor that does."""

PROJECT_CODE = _names(
    """
    bun bunx npm npx pnpm pnpx yarn uv uvx poetry pipenv hatch tox bundle
    alembic babel behave celery coverage django-admin esbuild eslint flask ghc gunicorn javac jupyter mkdocs mypy next
    open parcel prettier pylint rollup robot rustc scrapy sphinx-build tsc uvicorn vite
    ant autoreconf bazel bazelisk bear bitbake brew buck buck2 build.sh buildr cabal cargo cmake cpack composer
    conan configure ctest dotnet dub gem gmake gn go gradle gradlew grunt gulp hg invoke jake jest just lein make
    maturin meson mill mix mocha msbuild mvn mvnw nimble ninja nmake nose2 nosetests nox ospec pants phing phpunit pip
    pre-commit pulumi py.test pytest rake rebar rebar3 remake rspec samu sbt scons setup.py spack svn swiftpm task
    terraform vagrant vitest waf webpack xcodebuild xmake zig ansible ansible-playbook apt apt-get aptitude chef
    crontab dnf doit dpkg dpkg-deb fab git-shell gpg helm initctl kubectl launchctl logrotate nmap pacman puppet rpm
    rpmbuild run-parts salt service snap socat ncat nc netcat systemctl tcpdump update-alternatives vercel yum zypper
    xdg-open dpkg-architecture ld openssl patch
    """
)
"""Programs that run what the files of a project, package or configuration name, or start others in their own ways."""

AMBIGUOUS_WRAPPERS = _names(
    """
    arch at batch bwrap capsh catchsegv cgexec chpst chroot chrt choom cpulimit coproc
    dbus-launch dbus-run-session daemonize
    dumb-init docker dtach entr envdir expect eatmydata faketime fakechroot fakeroot firejail gosu hyperfine i386
    ld.so ld-linux libtool linux32 linux64 ltrace machinectl memusage mosh multitime nerdctl nsenter numactl parallel
    perf pkexec podman prlimit proot proxychains proxychains4 qemu-x86_64 qemu-aarch64 rr rsh rlwrap run0 runcon
    runuser screen script setarch setpriv setuidgid softlimit sem ssh ssh-agent sg sshpass start-stop-daemon strace su
    su-exec systemd-inhibit systemd-run systemd-cat tini tmux torsocks torify tsocks unbuffer uname26 unshare valgrind
    watch watchexec winpty wine wine64 x86_64 xvfb-run bun bunx bundle conda corepack direnv doppler
    fakeroot-sysv fakeroot-tcp gpg-agent newgrp scp sftp
    dotenv guix hatch lerna mamba micromamba mise nix nix-shell npm npx nvm nx pdm pipenv pipx pixi pnpm pnpx poetry
    pyenv rbenv rtx rustup asdf rye tox turbo uv uvx volta yarn
    """
)
"""Programs that start a command found somewhere in their words, or run code of a project or another machine."""

GIT_COMMANDS = _names(
    """
    add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore check-mailmap
    check-ref-format checkout checkout-index cherry cherry-pick clean clone column commit commit-graph commit-tree
    config count-objects describe diagnose diff diff-files diff-index diff-tree fast-export fetch fetch-pack
    for-each-ref format-patch fsck gc grep hash-object index-pack init interpret-trailers log ls-files ls-remote
    ls-tree maintenance merge merge-base merge-file merge-tree mktag mktree mv name-rev notes pack-objects pack-refs
    patch-id prune pull push range-diff read-tree rebase reflog remote repack replace rerere reset restore rev-list
    rev-parse revert rm send-pack shortlog show show-branch show-index show-ref sparse-checkout stage stash status
    stripspace submodule switch symbolic-ref tag unpack-objects update-index update-ref var verify-commit verify-pack
    verify-tag version whatchanged worktree write-tree
    """
)
"""Commands of `git --list-cmds=builtins` (2.39) of which the module `git` knows every way to start a program."""


_CODE_OPTIONS = re.compile(
    r"-[A-Za-z0-9]*[ceEmMprRxX]|--?(?:code|command|eval|exec|execute|module|print|require|run).*"
)
_HARMLESS = (("--version",), ("--help",))

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*[:?+!]{0,3}=.*", re.DOTALL)
_REDIRECTING = (
    *("eval", "exec", "toolexec", "vettool", "script-shell", "node-options", "prefix", "config", "manifest-path"),
    *("file", "makefile", "directory", "include-dir", "rootdir", "override-ini", "plugin", "init-script"),
    *("project-dir", "build-file", "require", "chdir", "linker", "confcutdir", "import", "loader", "rulesdir"),
)
_REDIRECTING_LETTERS = re.compile(r"-[fCIpcoDE]|-[A-Za-z]*[fCE]")
"""Short options that give a build tool other code: other files, directories or programs."""


def read_interpreter(name: str, words: Words) -> Iterator[Finding]:
    """Yield code, whatever the words. The first word that is no option, or an option like `-c`, brings it."""
    if words in _HARMLESS:
        return
    for index, word in enumerate(words):
        if not word.startswith("-") or word == "-" or _CODE_OPTIONS.fullmatch(word):
            yield OpaqueCode(f"{name} runs code", index)
            return
        if index + 1 < len(words) and word in ("-X", "-W", "-I", "-o", "-O"):
            break
    yield OpaqueCode(f"{name} runs code", None)


def read_project_code(name: str, words: Words) -> Iterator[Finding]:
    """Yield the project's code, named by the first word that is no option, and each word that brings other code."""
    if words in _HARMLESS:
        return
    named = next((index for index, word in enumerate(words) if not word.startswith("-")), None)
    yield OpaqueCode(f"{name} runs code from the files of a project or package", named)
    for index, word in enumerate(words):
        if index != named and _redirects(word):
            yield OpaqueCode(f"{word.partition('=')[0]} may bring other code to {name}", index)


def _redirects(word: str) -> bool:
    """Whether a word is a make assignment, or an option, perhaps abbreviated, that brings other code."""
    if word.startswith(("@", "+")) or _ASSIGNMENT.fullmatch(word):
        return True
    name = word.lstrip("-").partition("=")[0]
    if not word.startswith("-") or not name:
        return False
    is_long = len(name) > 1 and any(known.startswith(name) or name.startswith(known) for known in _REDIRECTING)
    return is_long or (not word.startswith("--") and _REDIRECTING_LETTERS.match(word) is not None)


_AWK = Options(
    "F:v:f:e:i:l:E:b:cCd::D::ghIkL::MnNo::OpPrsStV", "field-separator= assign= file= source= include= load= exec="
)
_AWK_STARTS = re.compile(r"system|[|@]")
"""Syntax by which awk starts programs: system(), a pipe, an indirect call, a loaded library."""


def read_awk(name: str, words: Words) -> Iterator[Finding]:
    """Yield code, unless the awk text has no syntax that could start a program."""
    if words in _HARMLESS:
        return
    text: str | None = None
    for token in _AWK.scan(words):
        if isinstance(token, Operand):
            text, at = token.word, token.index
            break
        if token.name not in ("-F", "-v", "--field-separator", "--assign"):
            yield OpaqueCode(f"{name} {token.name} brings code", token.index)
            return
    if text is None:
        yield OpaqueCode(f"{name} runs code", None)
    elif _AWK_STARTS.search(text.replace("||", "")):
        yield OpaqueCode(f"the text for {name} may start programs", at)


_SED = Options(
    "ne:f:i::l:rEsuzb",
    "quiet silent expression= file= in-place=? line-length= posix regexp-extended sandbox separate unbuffered null-data"
    " zero-terminated follow-symlinks binary debug",
)
MAX_SED_LENGTH = 2000
"""Characters of a sed script that is read; the time to match grows with their square."""

_SED_REGEX = r"(?:[^{d}\\\n\[]|\\[^\n]|\[\^?[^\]{d}\\\n\[]+\])*"
_SED_SUBSTITUTE = "|".join(
    rf"[sy]{d}{_SED_REGEX.format(d=d)}{d}(?:[^{d}\\\n]|\\[^\n])*{d}[gpiIM0-9]*" for d in map(re.escape, "/|,#:!")
)
"""A substitution without the flags `e` (runs the result) and `w` (writes a file)."""
_SED_ADDRESS = rf"(?:\d+|\$|/{_SED_REGEX.format(d='/')}/I?)"
_SED_COMMAND = rf"(?:{_SED_ADDRESS}(?:,{_SED_ADDRESS})?)?[ ]*!?[ ]*(?:[dDgGhHlnNpPqx=]|{_SED_SUBSTITUTE})"
_SED_HARMLESS = re.compile(rf"\s*(?:{_SED_COMMAND}\s*(?:[;\n]\s*|$))*")


def read_sed(name: str, words: Words) -> Iterator[Finding]:
    """Yield code, unless each expression has only commands that start nothing and write no other file."""
    if words in _HARMLESS:
        return
    texts: list[tuple[str | None, int]] = []
    operands: list[tuple[str | None, int]] = []
    for token in _SED.scan(words):
        if isinstance(token, Operand):
            operands.append((token.word, token.index))
        elif token.name in ("-e", "--expression"):
            texts.append((token.value, token.index))
        elif token.name in ("-f", "--file") or not token.is_known:
            yield OpaqueCode(f"{name} {token.name} may bring code", token.index)
    for text, at in texts or operands[:1]:
        if text is None or len(text) > MAX_SED_LENGTH or not _SED_HARMLESS.fullmatch(text):
            yield OpaqueCode(f"the text for {name} may start programs", at)
