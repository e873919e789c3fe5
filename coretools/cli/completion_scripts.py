"""Completion scripts for shells: each gets the candidates from `PROGRAM __complete`."""

import re

SHELLS = ("bash", "zsh", "fish")

_BASH = r"""# eval "$(coretools completion bash)"
_coretools() {
    local line word
    COMPREPLY=()
    while IFS= read -r line; do
        printf -v word '%q' "${line%%$'\t'*}"
        COMPREPLY+=("$word")
    done < <(coretools __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == */ ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o nosort -F _coretools coretools
"""

_ZSH = r"""#compdef coretools
# eval "$(coretools completion zsh)"
_coretools() {
    local line
    local -a values shown open
    while IFS= read -r line; do
        if [[ ${line%%$'\t'*} == */ ]]; then
            open+=("${line%%$'\t'*}")
        else
            values+=("${line%%$'\t'*}")
            shown+=("${line%%$'\t'*}  ${line#*$'\t'}")
        fi
    done < <(coretools __complete -- "${words[@]:1:$((CURRENT - 1))}" 2>/dev/null)
    compadd -l -d shown -a values
    compadd -S '' -a open
}
compdef _coretools coretools
"""

_FISH = r"""# coretools completion fish | source
complete -c coretools -f -a '(coretools __complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
"""


def script(shell: str, program: str = "coretools") -> str:
    """Return the completion script of a shell for a program."""
    text = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[shell]
    # The name of a function in a shell: letters, digits and `_`.
    return text.replace("_coretools", "_" + re.sub(r"\W", "_", program)).replace("coretools", program)
