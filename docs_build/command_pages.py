"""The reference of the command line, written from its parsers."""

import argparse
import re
from collections.abc import Iterator

from tarry.cli.main import parser

_TOP = """\
# The command line

`tarry [options] COMMAND`; the options may also follow the command. Errors are one line on stderr that says what
to do: exit status 1; a wrong call: 2. `tarry COMMAND --help` prints what stands here.

"""


def write() -> str:
    """The page: each command with its actions."""
    whole = parser()
    blocks = [_TOP + _arguments(whole)]
    for name, help, command in _commands(whole):
        blocks += [f"## tarry {name}", *_describe(command, help)]
        for action, about, part in _commands(command):
            blocks += [f"### tarry {name} {action}", *_describe(part, about)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _describe(command: argparse.ArgumentParser, help: str) -> Iterator[str]:
    yield f"{_sentence(help)}"
    yield _escape(command.description or "")
    yield f"```text\n{re.sub('^usage: ', '', _usage(command)).rstrip()}\n```"
    yield _arguments(command)
    yield _escape(command.epilog or "")


def _usage(command: argparse.ArgumentParser) -> str:
    # Of a long one the method of the command line leaves all out.
    return argparse.ArgumentParser.format_usage(command)


def _commands(whole: argparse.ArgumentParser) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """The commands of a parser: name, help, parser."""
    for action in whole._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {one.dest: one.help or "" for one in action._choices_actions}
            yield from ((name, helps.get(name, ""), command) for name, command in action.choices.items())


def _arguments(command: argparse.ArgumentParser) -> str:
    """A table of them; empty if there are none but those of all commands."""
    rows = [_row(command, action) for action in command._actions if _is_own(command, action)]
    return "\n".join(["| argument | |", "|---|---|", *rows]) if rows else ""


def _is_own(command: argparse.ArgumentParser, action: argparse.Action) -> bool:
    """Neither --help nor what every command takes, nor the word that names a command."""
    common = {"--help", "--config", "--app", "--json", "--utc"} if " " in command.prog else {"--help"}
    is_shown = action.help is not argparse.SUPPRESS and not isinstance(action, argparse._SubParsersAction)
    return is_shown and not common & set(action.option_strings)


def _row(command: argparse.ArgumentParser, action: argparse.Action) -> str:
    shown = _shown(action)
    # That of some options is made where it is shown.
    text = action.help() if callable(action.help) else action.help
    help = (text or "") % {**vars(action), "prog": command.prog}
    return f"| {shown} | {_escape(help).replace('|', chr(92) + '|')} |"


def _shown(action: argparse.Action) -> str:
    if not action.option_strings:
        name = action.metavar or action.dest
        return f"`{name if isinstance(name, str) else ' '.join(name)}`"
    value = "" if action.nargs == 0 else " " + str(action.metavar or _choices(action) or action.dest.upper())
    return ", ".join(f"`{one}{value}`" for one in action.option_strings)


def _choices(action: argparse.Action) -> str:
    return "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""


def _sentence(text: str) -> str:
    return _escape(f"{text[:1].upper()}{text[1:].rstrip('.')}.") if text else ""


def _escape(text: str) -> str:
    """No word of it is taken for HTML or emphasis, outside of code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<>])", r"\\\1", part) for part in parts)
