"""What `brimful --print-completion SHELL` writes: a script that completes verbs, options and files."""

from collections.abc import Mapping, Sequence

from brimful.base.errors import UsageError, nearest
from brimful.cli.options import flags_of

SHELLS = {"bash": "", "zsh": "autoload -U +X bashcompinit && bashcompinit\n"}
"""What comes before the script, which is in bash; zsh reads that too."""

_SCRIPT = """\
_brimful() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} words
    if ((COMP_CWORD == 1)); then
        words="{verbs} --help --version"
    else
        case ${{COMP_WORDS[1]}} in
{cases}
        esac
        [[ $current == -* ]] || words=""
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _brimful brimful
"""


def script(shells: Sequence[str], schemas: Mapping[str, type]) -> str:
    """The script for a shell.

    Args:
        shells: its name, alone.
        schemas: the configuration of each verb.

    Raises:
        UsageError: it is not one shell, or there is no script for it.
    """
    if len(shells) != 1:
        raise UsageError(f"--print-completion needs one shell: {' or '.join(SHELLS)}")
    shell = shells[0]
    if shell not in SHELLS:
        raise UsageError(f"--print-completion {shell}: {nearest(shell, SHELLS)}")
    flags = {verb: " ".join(flags_of(schema)) for verb, schema in schemas.items()}
    cases = "\n".join(f'            {verb}) words="{words}" ;;' for verb, words in flags.items())
    return SHELLS[shell] + _SCRIPT.format(verbs=" ".join(schemas), cases=cases)
