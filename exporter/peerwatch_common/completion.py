"""Completion of a command line in bash and zsh: a script made from the parser that reads it.

One bash function serves both: zsh runs it with its own ``bashcompinit``. It completes commands,
options, the choices of values, and paths where a path is read; what else a value may be is free.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SHELLS = ("bash", "zsh")

_SCRIPT = """\
{first}
{function}() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    local command="" word index
    # A newline only: names of files have spaces.
    local IFS=$'\\n'
    # bash takes --option=value for three words.
    if [ "$current" = "=" ]; then
        current=""
    elif [ "$previous" = "=" ]; then
        previous="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi
    index=1
    while [ "$index" -lt "$COMP_CWORD" ]; do
        word="${{COMP_WORDS[index]}}"
        case "$word" in
            {commands}) command="$word"; break ;;
        esac
        index=$((index + 1))
    done
    COMPREPLY=()
    case "$command $previous" in
{values}
    esac
    case "$command $current" in
{words}
    esac
}}
complete -o filenames -F {function} {program}
"""
# No command is named so: a parser without commands.
_NO_COMMAND = "' '"


class PrintCompletion(argparse.Action):
    """The option ``--print-completion``: prints the script and ends the process."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002 - argparse's signature
        values: str | Sequence[Any] | None,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        """Print the script for a shell."""
        sys.stdout.write(completion(parser, str(values)))
        parser.exit()


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Add ``--print-completion`` to a program's parser."""
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=SHELLS,
        help="print a script that completes this command line; for bash: "
        f"source <({parser.prog} --print-completion bash)",
    )


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell, one of ``SHELLS``.

    Parameters
    ----------
    parser
        The whole program's; it may have one level of commands.
    shell
        Name of the shell.
    """
    commands = {"": parser} | _commands(parser)
    first = f"# Completes {parser.prog} in {shell}."
    if shell == "zsh":
        # A user's own .zshrc has most likely run compinit: once is enough.
        first += "\n(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i; }"
        first += "\nautoload -Uz bashcompinit && bashcompinit"
    return _SCRIPT.format(
        first=first,
        function="_" + parser.prog.replace("-", "_"),
        program=parser.prog,
        commands="|".join(name for name in commands if name) or _NO_COMMAND,
        values="\n".join(line for name, each in commands.items() for line in _values(name, each)),
        words="\n".join(line for name, each in commands.items() for line in _words(name, each)),
    )


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    # argparse has no public way to ask what a parser reads.
    return [action for action in parser._actions if action.help != argparse.SUPPRESS]  # noqa: SLF001


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return {
        name: command
        for action in _actions(parser)
        if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
        for name, command in action.choices.items()
    }


def _values(command: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield what completes the value of each option; those of free values complete nothing."""
    for action in _actions(parser):
        if action.option_strings and action.nargs != 0:
            names = "|".join(f'"{command} {name}"' for name in action.option_strings)
            yield f"        {names}) {_reply(_choices(action), paths=action.type is Path)}return ;;"


def _words(command: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield what completes a word that is no option's value: an option, or an argument."""
    options = [name for action in _actions(parser) for name in action.option_strings]
    arguments = [action for action in _actions(parser) if not action.option_strings]
    choices = [choice for action in arguments for choice in _choices(action)]
    # Options that take several paths go on where arguments do.
    paths = any(
        action.type is Path and (not action.option_strings or action.nargs == "+")
        for action in _actions(parser)
    )
    yield f'        "{command} -"*) {_reply(options)};;'
    yield f'        "{command} "*) {_reply(choices, paths=paths)};;'


def _choices(action: argparse.Action) -> list[str]:
    return [str(choice) for choice in action.choices or ()]


def _reply(words: Sequence[str], *, paths: bool = False) -> str:
    """Return the shell command that offers words, or paths."""
    if words:
        listed = "\\n".join(words)
        return f"COMPREPLY=($(compgen -W $'{listed}' -- \"$current\")); "
    return 'COMPREPLY=($(compgen -f -- "$current")); ' if paths else ""
