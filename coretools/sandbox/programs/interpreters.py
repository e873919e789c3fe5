"""Programs that run code: interpreters, editors with a shell inside, build tools that run what a project says.

Pure. Nothing here tries to read a program's text, but for the few commands of awk and sed that start nothing.
"""

import re
from collections.abc import Iterator

from coretools.sandbox.programs.option_words import Operand, Options
from coretools.sandbox.programs.started import Code, Found, Words

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
"""Options that bring other code to a build tool: other files, other directories, other programs."""


def read_interpreter(name: str, words: Words) -> Iterator[Found]:
    """Code, whatever the words; the word that brings it is the first that is no option, or an option like `-c`."""
    if words in _HARMLESS:
        return
    for index, word in enumerate(words):
        if not word.startswith("-") or word == "-" or _CODE_OPTIONS.fullmatch(word):
            yield Code(f"{name} runs code", index)
            return
        if index + 1 < len(words) and word in ("-X", "-W", "-I", "-o", "-O"):
            break
    yield Code(f"{name} runs code", None)


def read_project_code(name: str, words: Words) -> Iterator[Found]:
    """Code of the project, named by the first word that is no option; each word that brings other code besides."""
    if words in _HARMLESS:
        return
    named = next((index for index, word in enumerate(words) if not word.startswith("-")), None)
    yield Code(f"{name} runs what the files of a project or package say", named)
    for index, word in enumerate(words):
        if index != named and _redirects(word):
            yield Code(f"{word.partition('=')[0]} may bring other code to {name}", index)


def _redirects(word: str) -> bool:
    """Whether a word is an assignment of make, or an option, perhaps abbreviated, that brings other code."""
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
"""Whatever starts something in awk: system(), a pipe to or from a command, an indirect call, a loaded library."""


def read_awk(name: str, words: Words) -> Iterator[Found]:
    """Code, unless the program's text holds nothing that could start another."""
    if words in _HARMLESS:
        return
    text: str | None = None
    for token in _AWK.scan(words):
        if isinstance(token, Operand):
            text, at = token.word, token.index
            break
        if token.name not in ("-F", "-v", "--field-separator", "--assign"):
            yield Code(f"{name} {token.name} brings code", token.index)
            return
    if text is None:
        yield Code(f"{name} runs code", None)
    elif _AWK_STARTS.search(text.replace("||", "")):
        yield Code(f"the text for {name} may start programs", at)


_SED = Options(
    "ne:f:i::l:rEsuzb",
    "quiet silent expression= file= in-place=? line-length= posix regexp-extended sandbox separate unbuffered null-data"
    " zero-terminated follow-symlinks binary debug",
)
LONGEST_TEXT = 2000
"""Characters of a text for sed that is read; matching takes a time that grows with the square of them."""

_SED_REGEX = r"(?:[^{d}\\\n\[]|\\[^\n]|\[\^?[^\]{d}\\\n\[]+\])*"
_SED_SUBSTITUTE = "|".join(
    rf"[sy]{d}{_SED_REGEX.format(d=d)}{d}(?:[^{d}\\\n]|\\[^\n])*{d}[gpiIM0-9]*" for d in map(re.escape, "/|,#:!")
)
"""A substitution without the flag `e` (runs the result) and `w` (writes a file)."""
_SED_ADDRESS = rf"(?:\d+|\$|/{_SED_REGEX.format(d='/')}/I?)"
_SED_COMMAND = rf"(?:{_SED_ADDRESS}(?:,{_SED_ADDRESS})?)?[ ]*!?[ ]*(?:[dDgGhHlnNpPqx=]|{_SED_SUBSTITUTE})"
_SED_HARMLESS = re.compile(rf"\s*(?:{_SED_COMMAND}\s*(?:[;\n]\s*|$))*")


def read_sed(name: str, words: Words) -> Iterator[Found]:
    """Code, unless each expression consists of commands that start nothing and write no other file."""
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
            yield Code(f"{name} {token.name} may bring code", token.index)
    for text, at in texts or operands[:1]:
        if not _is_harmless_sed(text):
            yield Code(f"the text for {name} may start programs", at)


def _is_harmless_sed(text: str | None) -> bool:
    return text is not None and len(text) <= LONGEST_TEXT and _SED_HARMLESS.fullmatch(text) is not None
