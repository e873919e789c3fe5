"""Find what options of programs start: `tar -I`, `rg --pre`, `rsync -e`, `find -exec`, ...

Pure. A value of plain words is read as a command. Any other text may reach a shell, so it counts as code.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from coretools.command_policy.getopt import Option, Options
from coretools.command_policy.subcommand import Finding, OpaqueCode, Subcommand, Words
from coretools.command_policy.wrappers import PLAIN_TEXT


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """The options of a program, and which of them start something."""

    options: Options
    commands: frozenset[str]
    """Options whose value is the text of a command."""
    code: frozenset[str] = frozenset()
    """Options that bring code other than a command: a library, another configuration."""


def _flags(short: str, long: str, commands: str, code: str = "") -> ProgramOptions:
    return ProgramOptions(Options(short, long), frozenset(commands.split()), frozenset(code.split()))


FLAGS = {
    "tar": _flags(
        "b:C:f:F:g:H:I:K:L:N:T:V:X:",
        "use-compress-program= to-command= checkpoint-action= checkpoint=? info-script= new-volume-script= to-stdout"
        " rsh-command= rmt-command= file= directory= files-from= exclude-from= listed-incremental= totals=?",
        "-I -F --use-compress-program --to-command --info-script --new-volume-script --rsh-command --rmt-command",
    ),
    "cpio": _flags("C:D:E:F:H:I:M:O:R:", "rsh-command= file= directory=", "--rsh-command"),
    "rg": _flags(
        "A:B:C:E:M:T:d:e:f:g:j:m:r:t:",
        "pre= pre-glob= hostname-bin= regexp= file= glob= iglob= type= pretty",
        "--pre --hostname-bin",
    ),
    "ag": _flags("A:B:C:G:g:m:p:", "pager=", "--pager"),
    "ack": _flags("A:B:C:f:g:m:", "pager= ackrc=", "--pager", "--ackrc"),
    "bat": _flags("r:l:H:m:", "pager= paging= language=", "--pager"),
    "delta": _flags("", "pager= paging=", "--pager"),
    "fzf": _flags("f:q:d:n:", "preview= bind= filter= preview-window=", "--preview --bind"),
    "rsync": _flags(
        "e:M:B:T:f:@:",
        "rsh= rsync-path= remote-option= config= early-exec= filter= exclude-from= files-from=",
        "-e --rsh --rsync-path --early-exec",
        "-M --remote-option --config",
    ),
    "scp": _flags("c:D:F:i:J:l:o:P:S:X:", "", "-S", "-o -F"),
    "sftp": _flags("B:b:c:D:F:i:J:l:o:P:R:S:s:X:", "", "-S -D -s", "-o -F -b"),
    "ssh-keygen": _flags("D:w:f:N:t:b:C:", "", "", "-D -w"),
    "sort": _flags(
        "k:o:S:t:T:",
        "compress-program= key= output= buffer-size= field-separator= temporary-directory= parallel= check=?",
        "--compress-program",
    ),
    "split": _flags("a:b:C:l:n:t:", "filter= additional-suffix= bytes= lines= number=", "--filter"),
    "zip": _flags("b:i:n:O:P:R:t:x:", "unzip-command= TT=", "--unzip-command --TT"),
    "man": _flags(
        "C:H::L:M:P:R:m:p:r:S:s:e:E:T::X::",
        "pager= html=? config-file= preprocessor= manpath=",
        "-P -H --pager --html",
        "-C --config-file",
    ),
    "wget": _flags(
        "O:P:o:a:e:i:U:", "use-askpass= execute= config= output-document=", "--use-askpass", "-e --execute --config"
    ),
    "curl": _flags("K:o:H:d:X:u:A:e:F:T:b:c:m:w:x:", "config= engine= output=", "", "-K --config --engine"),
    "install": _flags("g:m:o:S:t:", "strip-program= strip group= mode= owner= suffix=", "--strip-program"),
    "sdiff": _flags("w:o:I:", "diff-program= output= width=", "--diff-program"),
    "diff3": _flags("L:", "diff-program= label=", "--diff-program"),
    "gcc": _flags("o:I:L:l:D:U:x:", "wrapper= specs= fplugin=", "--wrapper", "--specs --fplugin -B"),
    "ld": _flags("o:L:l:", "plugin=", "", "--plugin"),
    "tree": _flags("I:L:P:o:", "charset= filelimit= timefmt=", "", "-R"),
    "openssl": _flags("", "engine= provider= provider-path=", "", "--engine --provider --provider-path"),
    "go": _flags("C:", "exec= toolexec= vettool=", "--exec --toolexec --vettool"),
    "fd": _flags("t:e:E:d:j:c:g:S:x:X:", "exec= exec-batch= extension= exclude= type=", ""),
}
FLAGS |= dict.fromkeys(("g++", "cc", "c++", "clang", "clang++", "cpp", "gfortran"), FLAGS["gcc"])
FLAGS |= {"bsdtar": FLAGS["tar"], "gtar": FLAGS["tar"], "gsort": FLAGS["sort"], "batcat": FLAGS["bat"]}
FLAGS |= {"fdfind": FLAGS["fd"]}

_ONE_DASH = re.compile(r"-(wrapper|specs|fplugin|plugin|engine|provider(?:-path)?|exec|toolexec|vettool)(?==|$)")
_COMPILERS = frozenset(name for name in FLAGS if FLAGS[name] is FLAGS["gcc"])
_PASSES_CODE = re.compile(
    r"-W[alp],.*(?:-pl|plugin|module-mapper|@).*"
    r"|--?(?:X|plugin|iplugindir|fmodule-mapper|fuse-ld|fpass-plugin|load|config|ld-path|ccc-|gcc-toolchain|spec).*"
    r"|--?f?no-integrated.*",
    re.DOTALL,
)
"""Words that pass options to the programs of a compiler, or choose other programs."""

_WITH_ONE_DASH = _COMPILERS | {"ld", "openssl", "go"}
"""Programs whose long options have one dash."""

_REMOTE = {
    "tar": ("-f", "--file"),
    "bsdtar": ("-f", "--file"),
    "gtar": ("-f", "--file"),
    "cpio": ("-F", "-I", "-O", "--file"),
}
_REMOTE_FILE = re.compile(r"[^/:]+:.*", re.DOTALL)
"""`host:file`, for which a program starts rsh or ssh."""

_ZIP_TEST = re.compile(r"-\w*?TT(.*)", re.DOTALL)
_FD_EXECUTE = {(name, option) for name in ("fd", "fdfind") for option in ("-x", "-X", "--exec", "--exec-batch")}


def command_text(text: str, by: str, index: int) -> Finding:
    """Return what the text of a command starts: its words if they are plain, otherwise code."""
    words = tuple(text.split())
    if words and PLAIN_TEXT.fullmatch(text) and "=" not in words[0]:
        # Most programs append words: a file, a repository. `env` followed by a file named `rm` starts rm.
        return Subcommand(words, by, has_unseen_words=True)
    return OpaqueCode(f"{by} runs text that is not just plain words", index)


def read_flags(name: str, words: Words) -> Iterator[Finding]:
    """Yield what the options of the program `name`, one of `FLAGS`, start."""
    yield from _plain_word_findings(name, words)
    for option in FLAGS[name].options.anywhere(_spelled_out(name, words)):
        if (name, option.name) in _FD_EXECUTE:
            command = (option.value or "", *words[option.index + 1 + option.takes_next :])
            for finding in _until_end(command, f"{name} {option.name}", option.index):
                # fd appends the file name unless the command has a placeholder.
                yield replace(finding, has_unseen_words=True) if isinstance(finding, Subcommand) else finding
        elif (found_one := _option_finding(name, option)) is not None:
            yield found_one


def _option_finding(name: str, option: Option) -> Finding | None:
    """Return what one option starts or brings."""
    flags, by, value = FLAGS[name], f"{name} {option.name}", option.value or ""
    if option.name == "--wrapper":  # gcc separates the words by commas
        return command_text(value.replace(",", " "), by, option.index)
    if value.startswith("exec=") and option.name == "--checkpoint-action":
        return command_text(value[5:], by, option.index)
    if option.name in flags.commands:
        return command_text(value, by, option.index)
    if option.name in flags.code:
        return OpaqueCode(f"{by} may bring code", option.index)
    if option.name in _REMOTE.get(name, ()) and _REMOTE_FILE.fullmatch(value):
        return OpaqueCode(f"{by} starts a program to reach another machine", option.index)
    return None


def _plain_word_findings(name: str, words: Words) -> Iterator[Finding]:
    """Yield what words other than option values start: compiler pass-through options, remote hosts of rsync."""
    for index, word in enumerate(words):
        if name in _WITH_ONE_DASH and word.startswith("@"):
            yield OpaqueCode(f"{name} reads options from a file", index)
        elif name in _COMPILERS and _PASSES_CODE.fullmatch(word):
            yield OpaqueCode(f"{name} {word.partition('=')[0]} may bring code", index)
        elif name == "rsync" and (word == "--daemon" or _REMOTE_FILE.fullmatch(word)):
            yield OpaqueCode(
                "rsync starts a program to reach another machine, or serves what its configuration names", index
            )


def _spelled_out(name: str, words: Words) -> Words:
    """Return the words with the syntax peculiar to one program rewritten for getopt."""
    if name in ("tar", "bsdtar", "gtar"):
        return _old_style(words)
    if name in _WITH_ONE_DASH:
        return tuple(_ONE_DASH.sub(r"--\1", word) for word in words)
    if name == "zip":
        tests = ((word, _ZIP_TEST.fullmatch(word)) for word in words)
        return tuple(f"--TT{'=' if test[1] else ''}{test[1]}" if test else word for word, test in tests)
    return words


def read_find(name: str, words: Words) -> Iterator[Finding]:
    """Yield the commands of `-exec`, `-execdir`, `-ok` and `-okdir`; `-delete` counts as `rm -r`."""
    # Also where the word may be a pattern (`-name -exec`): a command must not hide behind one.
    for index, word in enumerate(words):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            yield from _until_end(words[index + 1 :], f"{name} {word}", index)
    if "-delete" in words:
        yield Subcommand(("rm", "-r"), f"{name} -delete")


def _until_end(command: Words, by: str, index: int) -> Iterator[Finding]:
    """Yield the command up to `;`, or up to the `+` after `{}`."""
    ends = (at for at, word in enumerate(command) if word == ";" or (word == "+" and command[at - 1 : at] == ("{}",)))
    command = command[: next(ends, len(command))]
    if command and "{" in command[0]:
        yield OpaqueCode(f"{by} runs the files it finds", index)
    elif command:
        yield Subcommand(command, by)


def _old_style(words: Words) -> Words:
    """Rewrite `tar cIf PROGRAM FILE` as `tar -c -I PROGRAM -f FILE`: its values follow the letters, in order."""
    if not words or words[0].startswith("-"):
        return words
    letters, rest = words[0], list(words[1:])
    spelled: list[str] = []
    for letter in letters:
        spelled.append(f"-{letter}")
        if FLAGS["tar"].options.letters.get(letter) and rest:
            spelled.append(rest.pop(0))
    return (*spelled, *rest)
