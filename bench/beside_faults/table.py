"""What a cell says, and the table."""

from collections.abc import Mapping, Sequence

from bench.beside_faults.faults import FAULTS
from bench.beside_faults.judge import Poison, Verdict
from bench.beside_faults.projects import PROJECTS, Setting


def tell(verdict: Verdict) -> str:
    """A verdict in a few words."""
    return "; ".join([*_bad(verdict), *_good(verdict), *_of_poison(verdict.poison)])


def _bad(verdict: Verdict) -> list[str]:
    count = verdict.jobs
    sentences = [
        (verdict.lost, f"**lost {verdict.lost} of {count}**"),
        (verdict.waiting, f"{verdict.waiting} of {count} not within {verdict.watched:.0f} s"),
        (verdict.early, f"{verdict.early} of {count} early, by up to {verdict.early_by:.0f} s"),
        (verdict.twice, f"{verdict.twice} of {count} done twice"),
        (verdict.doubled, f"{verdict.doubled} of {verdict.ticks} ticks twice"),
        (verdict.missed, f"{verdict.missed} of {verdict.ticks} ticks missed"),
    ]
    return [words for number, words in sentences if number]


def _good(verdict: Verdict) -> list[str]:
    if verdict.ticks:
        return [] if verdict.doubled or verdict.missed else [f"{verdict.ticks} of {verdict.ticks} ticks once"]
    told = []
    if not verdict.lost and not verdict.waiting:
        told = [f"all {verdict.jobs} done after {verdict.done_after:.0f} s"]
    if verdict.again_after is not None:
        told.append(f"{verdict.interrupted} cut off, again after {verdict.again_after:.0f} s")
    return told


def _of_poison(poison: Poison | None) -> list[str]:
    if poison is None:
        return []
    times = f"{poison.attempts} time{'s' * (poison.attempts != 1)}"
    if not poison.is_over:
        return [f"**it ran {times} and goes on**"]
    return [f"it ran {times}, then is {'kept' if poison.is_stored else 'gone'}"]


def markdown(settings: Sequence[Setting], versions: Mapping[str, str], cells: Mapping[tuple[str, str], str]) -> str:
    """A table for each name of settings, one line a fault, one column a project; below them what the words mean."""
    faults = [fault for fault in FAULTS if any(name == fault.name for _, name in cells)]
    lines: list[str] = []
    for name in dict.fromkeys(one.name for one in settings):
        chosen = list({one.project: one for one in settings if one.name in ("default", name)}.values())
        heads = [f"{PROJECTS[one.project]} {versions[one.project]}" for one in chosen]
        lines += [_row([f"with *{name}* settings", *heads]), _row(["---"] * (1 + len(heads)))]
        lines += [
            _row([f"`{fault.name}`", *(cells.get((one.key, fault.name), "") for one in chosen)]) for fault in faults
        ]
        lines.append("")
    lines += [f"- `{fault.name}`: {fault.words}." for fault in faults]
    lines += [
        "",
        *(f"- {PROJECTS[one.project]}, *{one.name}*: {one.words} ([documentation]({one.link}))." for one in settings),
    ]
    return "\n".join(lines)


def _row(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"
