"""Names of programs, by what they start: nothing, or others in one of several ways.

Pure. A program that no list names is code that can't be judged, so what is missing here costs a refusal and opens
nothing (docs/adr/0048). The lists of programs that start others decide how their words are read; their names are as
`started.names_of` gives them: lower case, no directory, with and without a version at the end.
"""

import re


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
"""Start no other program, whatever their words (GNU coreutils 9.1, grep 3.8, diffutils 3.8, util-linux 2.38, procps
4.0, psmisc 23.6, binutils 2.40, libxml2 2.9, jq 1.6, Info-ZIP). A few run a fixed helper: `file -z`, `iconv` and
`locale` gzip, `diff -l` pr, `ps` a debugger when it crashes; `which` is a script of a shell. Of those binaries in
Debian 12 only these and `pidof` import exec, system or posix_spawn (readelf --dyn-syms)."""

COMPILER = re.compile(
    r"(?:[a-z0-9_]+-linux-(?:gnu|musl)[a-z0-9]*-)?(?:gcc|g\+\+|cpp|gfortran|clang|clang\+\+)(?:-[0-9]+)?"
)
"""Names of compilers whose options `flags` knows: `gcc`, `clang++-14`, `x86_64-linux-gnu-gcc-12`."""

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
"""Run code that stands in their words, in a file or on standard input, or open a pager or editor that does."""

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
"""Run what the files of a project, a package or a configuration say, or start others in ways of their own."""

LOOSE = _names(
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
"""Start a command that stands somewhere in their words, or run what a project or another machine has."""

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
"""Commands of `git --list-cmds=builtins` (2.39) whose ways to start something are all in `git_words`."""
