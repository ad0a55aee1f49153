"""The public surface: what `import tarry` has, and the commands. `python -m tests.surface` writes them to
public_surface.txt and public_commands.txt.

One line a name, inherited ones too: functions and methods with their arguments, types and defaults; attributes with
their types. Names that begin with an underscore, and what lives in the modules behind, are not part of it. One line a
command, with what it takes, defaults and the words that it knows.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

from tarry.cli.main import parser

ROOT = Path(__file__).resolve().parents[1]
FILE, COMMANDS = (Path(__file__).with_name(f"public_{name}.txt") for name in ("surface", "commands"))


def surface() -> str:
    """The text of the file, sorted by name."""
    package: Any = griffe.load("tarry", search_paths=[str(ROOT)], allow_inspection=False)
    exported = package.exports or ()
    lines = [line for name in sorted(map(str, exported)) for line in _describe(name, package.members[name])]
    return "\n".join(lines) + "\n"


def _describe(path: str, found: Any) -> Iterator[str]:
    target = found.final_target if found.is_alias else found
    if target.is_class:
        bases = ", ".join(map(str, target.bases))
        yield f"class {path}({bases})" if bases else f"class {path}"
        for name, member in sorted(target.all_members.items()):
            # An alias that is not inherited is an import in the body of the class.
            if (not member.is_alias or member.inherited) and (not name.startswith("_") or name == "__init__"):
                yield from _describe(f"{path}.{name}", member)
    elif target.is_function:
        for one in target.overloads or [target]:
            yield ("async " if "async" in target.labels else "") + one.signature(name=path)
    else:
        yield _attribute(path, target)


def _attribute(path: str, attribute: Any) -> str:
    annotation = f": {attribute.annotation}" if attribute.annotation is not None else ""
    value = f" = {attribute.value}" if attribute.value is not None else ""
    return f"{path}{annotation}{value}"


def commands() -> str:
    """The text of the other file."""
    return "\n".join(_commands("tarry", parser())) + "\n"


def _commands(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    words = [name]
    within: list[tuple[str, argparse.ArgumentParser]] = []
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            within += action.choices.items()
        # What all commands have stands behind `tarry`.
        elif action.default != argparse.SUPPRESS:
            words.append(_describe_action(action))
    yield " ".join(words)
    for word, one in within:
        yield from _commands(f"{name} {word}", one)


def _describe_action(action: argparse.Action) -> str:
    # What the help calls a value is for people.
    known = "|".join(map(str, action.choices or ()))
    if not action.option_strings:
        text = known or action.dest
    else:
        text = ",".join(action.option_strings) + ("" if action.nargs == 0 else f" {known or '...'}")
    default = "" if action.default is None or action.nargs == 0 else f" = {action.default}"
    return f"[{text}{default}]" if action.option_strings or action.nargs in ("?", "*") else text


if __name__ == "__main__":
    for file, text in ((FILE, surface()), (COMMANDS, commands())):
        file.write_text(text, encoding="utf-8")
        print(f"wrote {file.relative_to(ROOT)}")
