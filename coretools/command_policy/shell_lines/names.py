"""What names mean to bash 5.2: reserved words, builtins that run code or change meanings, special variables.

Each entry stands for a line that really started a program (`tests/command_policy/test_shell_attacks.py`).
"""

import re


def names_in(text: str) -> frozenset[str]:
    """Return the names in a text with blanks between them."""
    return frozenset(text.split())


RESERVED = names_in("! { } [[ ]] if then elif else fi for while until do done case esac select function in coproc")
"""Reserved words (bash(1), RESERVED WORDS). As a program they mean that the grammar read the line differently."""

CODE_BUILTINS = names_in(
    """
    eval source . trap alias unalias enable bind complete compgen compopt fc history let getopts
    """
)
"""Builtins whose words are code, or that change what later words mean."""

STATE_BUILTINS = names_in(
    """
    : true false test [ cd pushd popd dirs export declare typeset local readonly unset set shift shopt read mapfile
    readarray return exit break continue logout wait jobs fg bg disown umask ulimit times type hash help caller suspend
    """
)
"""Builtins that start nothing: they change or show the state of the shell. Those that are programs too, and do more
than test (`echo`, `printf`, `kill`, `pwd`), are judged like the programs."""

NAMING_BUILTINS = {
    "mapfile": "C",
    "readarray": "C",
    "declare": "ni",
    "typeset": "ni",
    "local": "ni",
    "hash": "p",
    "jobs": "x",
    **dict.fromkeys(("read", "unset", "export", "readonly"), ""),
}
"""Builtins whose words name variables, with the options that run code or change how a value is read."""

DECLARING_BUILTINS = names_in("export declare typeset local readonly")
DATA_BUILTINS = names_in("read mapfile readarray")
"""Builtins that fill the variables that they name."""

SET_OPTION = re.compile(
    r"[-+][euxvfCEam]*o?|pipefail|errexit|nounset|xtrace|noglob|noclobber|errtrace|verbose|allexport|monitor"
)
"""Words of `set` that change no meaning; `-k`, `-H`, `posix` and others do."""

SHOPT_WORD = re.compile(r"-[suqpo]*|nullglob|globstar|dotglob|failglob|nocaseglob|inherit_errexit|lastpipe|pipefail")

SPECIAL_VARIABLE = re.compile(
    r"""PATH|BASH\w*|ENV|IFS|PS[0-4]|PROMPT_COMMAND|SHELLOPTS|POSIXLY_CORRECT|CDPATH|GLOBIGNORE|GLOBSORT|EXECIGNORE
    |LD_\w+|SHELL|DIRSTACK|TEXTDOMAIN\w*|FCEDIT|HIST\w+|histchars|COMP\w*|READLINE\w*|GCONV_PATH|LOCPATH|_|OPT\w+
    |REPLY|S?RANDOM|SECONDS|LINENO|EPOCH\w*|FUNCNAME|MAPFILE|COPROC\w*|PWD|OLDPWD|E?UID|PPID|GROUPS""",
    re.VERBOSE,
)
"""Variables that change what bash starts or how it reads, or whose values bash evaluates."""

PLAIN_NUMBER_VARIABLE = re.compile(r"S?RANDOM|SECONDS|LINENO|EPOCHSECONDS|BASHPID|E?UID|PPID|SHLVL")
"""Variables that bash keeps as numbers, so that arithmetic can read them."""

LOCALE_VARIABLE = re.compile(r"LC_\w+|LANG(?:UAGE)?")
PLAIN_LOCALE = re.compile(r"|C|POSIX|(?:C|en_US)\.(?:UTF-8|utf8)")
"""Other locales can have characters that contain a backslash or a quote as a byte."""

ASSIGNMENT_LIKE = re.compile(r"\w+(?:\[.*\])?\+?=", re.DOTALL)
"""What bash takes for an assignment at the start of a command."""

LOOKUP = re.compile(r"-p?[vV]")
"""Options with which `command` only tells where a program is."""
