"""Makes docs/images/top.svg, `tarry top` as it moves: `make screenshots`. A real master, some busy seconds."""

import tempfile
import time
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path

from tests.cli.project import Project
from tests.cli.terminal import Terminal

IMAGE = Path(__file__).parents[2] / "docs" / "images" / "top.svg"
WIDTH, HEIGHT, FRAMES, EVERY = 104, 26, 8, 1.0
CELL_WIDTH, CELL_HEIGHT, EDGE = 7.8, 17, 12
DARK, LIGHT = "#16181d", "#d7dae0"
COLOURS = {
    "black": "#3b4048", "red": "#e06c75", "green": "#98c379", "brown": "#e5c07b", "yellow": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd", "cyan": "#56b6c2", "white": LIGHT, "brightblack": "#7f848e",
}  # fmt: skip
APP = """
import random, time
from tarry import App

app = App()

@app.task(queue="mail")
def send(number: int) -> None:
    time.sleep(random.uniform(0.005, 0.03))

@app.task(queue="reports")
def report(number: int) -> None:
    time.sleep(random.uniform(0.5, 2))

@app.task(queue="hooks", retry=3)
def notify(number: int) -> None:
    time.sleep(0.02)
    if random.random() < 0.02:
        raise ConnectionError("no answer")
"""
SETTINGS = """
[pools.default]
queues = ["mail", "hooks"]
workers = 2
threads = 4

[pools.reports]
queues = ["reports"]
threads = 3
"""

Cells = tuple[tuple[str, str, str, bool], ...]
"""Of a line: text, colour, background, whether bold."""


def frames() -> Iterator[list[Cells]]:
    """What the terminal shows, one moment after the other."""
    with tempfile.TemporaryDirectory() as directory:
        project = Project(Path(directory), APP, SETTINGS)
        terminal = None
        try:
            project.serve()
            terminal = Terminal(project, "--interval", "0.5", width=WIDTH, height=HEIGHT)
            for second in range(FRAMES + 6):
                for task, queue, many in (
                    ("send", "mail", 90 + 40 * (second % 3)), ("report", "reports", 4), ("notify", "hooks", 30),
                ):  # fmt: skip
                    project.put(f"app.{task}", second, queue=queue, times=many)
                end = time.monotonic() + EVERY
                while time.monotonic() < end:
                    terminal.lines()
                if second >= 6:  # the rates have something to say
                    yield [_line(terminal, row, directory) for row in range(HEIGHT)]
        finally:
            if terminal is not None:
                terminal.close()
            project.close()


def _line(terminal: Terminal, row: int, directory: str) -> Cells:
    """The runs of one look; the directory of this machine is nobody's business."""
    cells = [terminal.screen.buffer[row][column] for column in range(WIDTH)]
    found = []
    for (fg, bg, bold, reverse), run in groupby(cells, key=lambda cell: (cell.fg, cell.bg, cell.bold, cell.reverse)):
        text = "".join(cell.data for cell in run)
        front, back = COLOURS.get(fg, LIGHT), COLOURS.get(bg, DARK)
        shown = text.replace(directory, "/srv/shop").ljust(len(text))
        found.append((shown, *((back, front) if reverse else (front, back)), bold))
    return tuple(found)


def draw(shown: list[list[Cells]]) -> str:
    """The picture: each frame is to be seen in its turn, and the last one where nothing is to move."""
    wide, high = WIDTH * CELL_WIDTH + 2 * EDGE, HEIGHT * CELL_HEIGHT + 2 * EDGE
    part = 100 / len(shown)
    style = (
        f"text{{font:13px ui-monospace,Menlo,Consolas,monospace;white-space:pre}}.f{{visibility:hidden;animation:f "
        f"{len(shown)}s step-end infinite}}@keyframes f{{0%{{visibility:visible}}{part:.4g}%{{visibility:hidden}}}}"
        "@media (prefers-reduced-motion:reduce){.f{animation:none}.f:last-child{visibility:visible}}"
    )
    groups = "\n".join(
        f'<g class="f" style="animation-delay:{number}s">{"".join(_draw_line(*one) for one in enumerate(lines))}</g>'
        for number, lines in enumerate(shown)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}"><style>{style}</style>'
        f'<rect width="100%" height="100%" rx="8" fill="{DARK}"/>\n{groups}\n</svg>\n'
    )


def _draw_line(row: int, runs: Cells) -> str:
    parts, column, top = [], 0, EDGE + row * CELL_HEIGHT
    for text, front, back, bold in runs:
        left = EDGE + column * CELL_WIDTH
        if back != DARK:
            size = f'width="{len(text) * CELL_WIDTH:g}" height="{CELL_HEIGHT}"'
            parts.append(f'<rect x="{left:g}" y="{top}" {size} fill="{back}"/>')
        if words := text.rstrip():
            lead = len(words) - len(words.lstrip())
            words = words.lstrip()
            weight = ' font-weight="bold"' if bold else ""
            parts.append(
                f'<text x="{left + lead * CELL_WIDTH:g}" y="{top + 13}" textLength="{len(words) * CELL_WIDTH:g}" '
                f'fill="{front}"{weight}>{escape(words)}</text>'
            )
        column += len(text)
    return "".join(parts)


if __name__ == "__main__":
    IMAGE.write_text(draw(list(frames())), encoding="utf-8")
