"""`tarry completion`: a script by which a shell completes commands and options."""

import argparse
from collections.abc import Iterator

from tarry.errors import TarryError

SHELLS = ("bash", "zsh", "fish")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    completion = commands.add_parser(
        "completion",
        help="print a script that completes words in a shell",
        description="In ~/.bashrc, or in ~/.zshrc after compinit:"
        ' eval "$(tarry completion bash)". For fish: tarry completion fish > ~/.config/fish/completions/tarry.fish',
    )
    completion.add_argument("shell", choices=SHELLS)
    completion.set_defaults(run=run_completion)


def run_completion(args: argparse.Namespace) -> int:
    """Prints the script, which knows all commands of this version; TarryError: the extra is not installed."""
    try:
        import shtab  # noqa: PLC0415 - an extra
    except ImportError:
        raise TarryError("completion needs shtab: pip install 'tarry[completion]'") from None
    # Only this command needs the parser of all commands.
    from tarry.cli.main import parser, read_help  # noqa: PLC0415

    whole = parser()
    for each in _all_parsers(whole):
        read_help(each)
        # zsh shows it on one line.
        each.description = (each.description or "").partition(". ")[0] or None
        for action in each._actions:
            if action.metavar == "FILE":
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    # Not `print_line`: the script is for a shell, not for a terminal, and must stay as it is.
    print(shtab.complete(whole, args.shell))
    return 0


def _all_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser, and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _all_parsers(command)
