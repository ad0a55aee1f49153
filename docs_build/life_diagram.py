"""The states of a job as a drawing for the site, where GitHub draws the Mermaid of docs/lifecycle.md.

Mermaid in a browser would be three megabytes of scripts, from another host. Where the arrows are is written here; which
there are, and what they are called, comes from the state machine. An arrow too many or too few fails the build.
"""

from typing import NamedTuple

from tests.lifecycle_page import OUTSIDE, Way, ways

ENDED = "ended"
_GROUPS = {"done": ENDED, "dead": ENDED, "cancelled": ENDED}
_SHOWN = 2
"""So many events stand at an arrow; the table below the drawing has all."""


class _Arrow(NamedTuple):
    """path: an SVG path. x, y: where the middle of its words is."""

    path: str
    x: int
    y: int


_STATES = {"blocked": (85, 45), "scheduled": (85, 300), "ready": (320, 150), "running": (570, 150), ENDED: (860, 150)}
_ARROWS = {
    ("blocked", "scheduled"): _Arrow("M75,66 V276", 45, 120),
    ("blocked", "ready"): _Arrow("M143,50 Q240,75 290,126", 240, 72),
    ("scheduled", "ready"): _Arrow("M105,278 Q150,180 260,156", 165, 190),
    ("ready", "scheduled"): _Arrow("M305,172 Q270,270 146,294", 262, 240),
    ("ready", "running"): _Arrow("M378,142 H510", 445, 133),
    ("running", "ready"): _Arrow("M512,158 H381", 445, 176),
    ("running", "scheduled"): _Arrow("M570,172 Q490,330 146,310", 450, 284),
    ("running", ENDED): _Arrow("M628,150 H799", 713, 141),
    ("ready", ENDED): _Arrow("M335,172 Q640,290 802,176", 690, 222),
    ("scheduled", ENDED): _Arrow("M143,318 Q680,390 860,186", 640, 337),
    ("blocked", ENDED): _Arrow("M143,34 Q660,-10 860,112", 580, 18),
    (ENDED, "ready"): _Arrow("M802,124 Q560,50 341,126", 570, 78),
}


def draw() -> str:
    """The drawing as SVG, to stand in Markdown."""
    events = _events(ways())
    if events.keys() != _ARROWS.keys():
        raise ValueError(
            f"life_diagram.py: draw {events.keys() - _ARROWS.keys()}, not {_ARROWS.keys() - events.keys()}"
        )
    arrows = "".join(_draw_arrow(arrow, events[ends]) for ends, arrow in _ARROWS.items())
    states = "".join(_draw_state(name, *place) for name, place in _STATES.items())
    return (
        '<svg class="life" viewBox="0 0 930 360" role="img" aria-label="The states of a job, as in the table below">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8z"/></marker></defs>{arrows}{states}</svg>'
    )


def _events(found: list[Way]) -> dict[tuple[str, str], list[str]]:
    """The events that lead from a state to another one; those that are finished are one."""
    events: dict[tuple[str, str], list[str]] = {}
    for way in found:
        start, end = _GROUPS.get(way.start, way.start), _GROUPS.get(way.end, way.end)
        names = events.setdefault((start, end), []) if OUTSIDE not in (start, end) and start != end else []
        if way.event not in names:
            names.append(way.event)
    return events


def _draw_arrow(arrow: _Arrow, events: list[str]) -> str:
    shown = ", ".join(events[:_SHOWN]) + (" …" if len(events) > _SHOWN else "")
    return (
        f'<path class="arrow" d="{arrow.path}" marker-end="url(#tip)"><title>{", ".join(events)}</title></path>'
        f'<text class="event" x="{arrow.x}" y="{arrow.y}">{shown}</text>'
    )


def _draw_state(name: str, x: int, y: int) -> str:
    height = 66 if name == ENDED else 40
    box = f'<rect x="{x - 57}" y="{y - height // 2}" width="114" height="{height}" rx="8"/>'
    lines = list(_GROUPS) if name == ENDED else [name]
    first = y + 5 - 9 * (len(lines) - 1)
    words = (
        f'<text class="state" x="{x}" y="{first + 18 * number}">{line}</text>' for number, line in enumerate(lines)
    )
    return box + "".join(words)
