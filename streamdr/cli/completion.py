"""Shell completion as a static script: the shell completes commands and options without starting Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_BASH = """\
_streamdr() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words="{commands}"
    if [[ $COMP_CWORD != 1 ]]; then
        case ${{COMP_WORDS[1]}} in
{cases}
            *) words="" ;;
        esac
    fi
    if [[ $COMP_CWORD == 1 || $word == -* ]]; then
        COMPREPLY=( $(compgen -W "$words" -- "$word") )
    fi
}}
complete -o default -F _streamdr streamdr
"""
_ANYWHERE = ("--help", "--version")
"""Options that may be given in place of a command."""
_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


@dataclass(frozen=True)
class Command:
    """A command with what completion needs."""

    summary: str
    options: Mapping[str, str]
    """The help of each option, by its name with the dashes."""


def script(shell: str, commands: Mapping[str, Command]) -> str:
    """Return the script with which a shell (bash, zsh or fish) completes commands and options."""
    if shell == "fish":
        return _fish(commands)
    cases = [
        f'            {name}) words="{" ".join(command.options)}" ;;' for name, command in commands.items()
    ]
    bash = _BASH.format(cases="\n".join(cases), commands=" ".join((*commands, *_ANYWHERE)))
    return bash if shell == "bash" else _ZSH + bash


def commands_of(group: Any) -> dict[str, Command]:
    """Return the commands of a group of typer, with their options."""
    return {
        name: Command(command.get_short_help_str(), _options(command))
        for name, command in group.commands.items()
    }


def _options(command: Any) -> dict[str, str]:
    """Return the visible options of a command, with their help."""
    listed = {
        flag: option.help or ""
        for option in command.params
        if option.param_type_name == "option" and not option.hidden
        for flag in (*option.opts, *option.secondary_opts)
    }
    return {**listed, "--help": "Show this message and exit."}


def _fish(commands: Mapping[str, Command]) -> str:
    lines = []
    for name, command in commands.items():
        lines.append(
            f"complete -c streamdr -n __fish_use_subcommand -f -a {name} -d {_quoted(command.summary)}"
        )
        for option, help_text in command.options.items():
            seen = _quoted(f"__fish_seen_subcommand_from {name}")
            long = option.removeprefix("--")
            lines.append(f"complete -c streamdr -n {seen} -l {long} -d {_quoted(help_text)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return text in single quotes, escaped for fish."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
