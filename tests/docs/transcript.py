"""A console block: what is typed, and what is printed."""

import re
from typing import NamedTuple

_STATUS = re.compile(r"# exit status (\d+)$")
_ACTS = "add|edit|remove|try|cancel|retry|delete|kill|run|pause|resume|purge|set|reset|signal|approve|reload|scale|stop"
_LOOKS = re.compile(
    r"tarry( --json)? (jobs|queues|flows|hosts|limits|schedules|tasks|endpoints|stats|status)"
    rf"(?! ({_ACTS}))( |$)|curl -s (?!.*(-X|-d|--json|--data))|cat "
)
_WAITS = "waiting for "


class Step(NamedTuple):
    """A command, and the lines that the page shows after it."""

    command: str
    expected: list[str]

    @property
    def is_background(self) -> bool:
        return self.command.endswith(" &")

    @property
    def only_looks(self) -> bool:
        """It may be repeated until it shows what is expected: what a reader types takes a while, too."""
        return _LOOKS.match(self.command) is not None

    @property
    def status(self) -> int:
        """The exit status that the page tells."""
        found = _STATUS.search(self.command)
        return int(found[1]) if found else 0


def read_steps(text: str) -> list[Step]:
    """The commands of a block, in its order."""
    steps: list[Step] = []
    typing = False
    for line in text.splitlines():
        if line.startswith("$ "):
            steps.append(Step(line[2:].rstrip(), []))
        elif not steps:
            raise ValueError(f"a console block begins with `$ ` and a command, not with {line!r}")
        elif typing or (line.startswith("> ") and not steps[-1].expected):
            typed = line.removeprefix("> ").rstrip()
            steps[-1] = steps[-1]._replace(command=f"{steps[-1].command}\n{typed}")
        elif line.strip():
            steps[-1].expected.append(line.rstrip())
        typing = steps[-1].command.endswith("\\") and not steps[-1].expected
    return steps


def is_all(expected: list[str], printed: str) -> bool:
    """What was printed is just that, from first to last; besides that a command may say what it waits for, where the
    machine is slow."""
    shown = _clean(printed)
    if not any(line.startswith(_WAITS) for line in expected):
        shown = "".join(line for line in shown.splitlines(keepends=True) if not line.startswith(_WAITS))
    return _pattern(expected).fullmatch(shown) is not None


def is_in(expected: list[str], printed: str) -> bool:
    """These lines are there, in this order, with any others between them."""
    spaced = [line for one in expected for line in ("...", one)]
    return _pattern([*spaced, "..."]).fullmatch(_clean(printed)) is not None


def _clean(printed: str) -> str:
    """Without colours, empty lines and blanks at the ends."""
    lines = re.sub(r"\x1b\[[\d;]*[a-zA-Z]", "", printed).replace("\r", "\n").splitlines()
    return "".join(f"{line.strip()}\n" for line in lines if line.strip())


def _pattern(expected: list[str]) -> re.Pattern[str]:
    return re.compile("".join(r"(?:[^\n]*\n)*?" if line.strip() == "..." else _line(line) for line in expected))


def _line(line: str) -> str:
    parts = (r"[^\S\n]+".join(map(re.escape, part.split())) for part in _kept(line).split("..."))
    return r"[^\n]*".join(parts) + r"\n"


def _kept(line: str) -> str:
    """The blanks beside `...` are part of what it stands for."""
    return re.sub(r"\s*\.\.\.\s*", "...", line.strip())
