"""The rules of a history that are about several jobs: limits, keys, order, flows, sums, and what is left over."""

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from tarry.testing.history_events import (
    FINISHED_STATES,
    Ended,
    FinalState,
    HistoryEvent,
    LimitSet,
    Put,
    Rescheduled,
    Started,
)
from tarry.testing.history_rules import Violation
from tarry.testing.job_history import NEVER, AttemptSpan, HistoryIndex, JobHistory

GroupRule: TypeAlias = Callable[[HistoryIndex, int], Iterator[Violation]]
_NO_LIMIT = LimitSet("", 0)


def limit(history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """At no moment do more jobs run than the limit lets: that at the start, or that at the claim if it was higher."""
    for name, attempts in _attempts_under_limits(history):
        running: list[tuple[int, int, Started]] = []
        for place, attempt in enumerate(attempts):
            start = attempt.start
            while running and running[0][0] <= start.at + tolerance:
                heapq.heappop(running)
            heapq.heappush(running, (attempt.until, place, start))
            most = max(_most(history.limits[name], attempt.claimed), _most(history.limits[name], start.at))
            if len(running) > most:
                other = next(one for *_, one in running if one is not start) if most else None
                text = f"{len(running)} run under {name}, which allows {most}"
                yield Violation("limit", start.job, text, start, other)


def rate(history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """In no period do more jobs start than the limit lets."""
    for name, attempts in _attempts_under_limits(history):
        claims = sorted(attempts, key=lambda one: one.claimed)
        for place, attempt in enumerate(claims):
            setting = _in_force(history.limits[name], attempt.claimed)
            before = claims[place - setting.count] if 0 < setting.count <= place else None
            if before is None or before.claimed < setting.at:
                continue
            if attempt.claimed - before.claimed + tolerance < setting.period:
                text = f"more than {setting.count} started in {setting.period} microseconds under {name}"
                yield Violation("rate", attempt.start.job, text, attempt.start, before.start)


def _attempts_under_limits(history: HistoryIndex) -> Iterator[tuple[str, list[AttemptSpan]]]:
    """For each limit, and for each lane under one, the attempts that it counts, sorted by their start."""
    found: dict[tuple[str, str], list[AttemptSpan]] = {}
    for job in history.jobs.values():
        for place in _limits_of(job.put):
            if place[0] in history.limits:
                found.setdefault(place, []).extend(one for one in job.attempts if one.until >= one.start.at)
    for (name, _), attempts in found.items():
        yield name, sorted(attempts, key=lambda one: one.start.at)


def _limits_of(put: Put | None) -> Iterator[tuple[str, str]]:
    if put is not None:
        yield f"queue:{put.queue}", ""
        yield f"task:{put.task}", ""
        if put.lane is not None:
            yield f"each:{put.task}", put.lane


def _in_force(settings: Sequence[LimitSet], time: int) -> LimitSet:
    place = bisect_right(settings, time, key=lambda setting: setting.at)
    return settings[place - 1] if place else _NO_LIMIT


def _most(settings: Sequence[LimitSet], time: int) -> int:
    most = _in_force(settings, time).most
    return NEVER if most is None else most


def key(history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """No two unfinished jobs of a task have the same key."""
    by_key: dict[tuple[str, str], list[tuple[int, int, Put]]] = {}
    for job in history.jobs.values():
        put, sure = job.put, _surely_unfinished(job)
        if put is not None and put.key is not None and sure is not None:
            by_key.setdefault((put.task, put.key), []).append((*sure, put))
    for spans in by_key.values():
        spans.sort(key=lambda span: span[0])
        longest = spans[0]
        for span in spans[1:]:
            if span[0] + tolerance < longest[1]:
                text = f"two unfinished jobs have the key {span[2].key!r}"
                yield Violation("key", span[2].job, text, span[2], longest[2])
            longest = max(longest, span, key=lambda one: one[1])


def _surely_unfinished(job: JobHistory) -> tuple[int, int] | None:
    """From when until when it surely was not finished; None if nothing tells."""
    # Once it was finished, and was run again, another job may have had its key meanwhile.
    revived = job.revivals[0] if job.revivals else NEVER
    attempts = [one for one in job.attempts if one.is_valid and one.start.at < revived]
    if job.put is None or not attempts:
        return None
    last = max(one.owned_until if one.owned_until < NEVER else one.start.at for one in attempts)
    return min(job.put.at, attempts[0].start.at), last


def order(history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """The jobs of a line go one after another, in the order of their puts."""
    lines: dict[tuple[str, str], list[JobHistory]] = {}
    for job in history.jobs.values():
        if job.put is not None and job.put.order is not None and not job.revivals and not job.of(Rescheduled):
            lines.setdefault((job.put.task, job.put.order), []).append(job)
    for line in lines.values():
        line.sort(key=_place_in_line)
        yield from _out_of_order(line, tolerance)


def _place_in_line(job: JobHistory) -> tuple[int, int]:
    assert job.put is not None
    return max(job.put.at, job.put.due), job.put.at


def _out_of_order(line: Sequence[JobHistory], tolerance: int) -> Iterator[Violation]:
    # Until when a job before it is at work, and an event that tells so.
    last: tuple[int, HistoryEvent | None] = (-1, None)
    waiting: list[JobHistory] = []
    for job in line:
        # Of those that were put at the same moment nobody knows which was first.
        if waiting and _place_in_line(waiting[0]) != _place_in_line(job):
            last = max([last, *map(_at_work_until, waiting)], key=lambda one: one[0])
            waiting = []
        waiting.append(job)
        first = job.attempts[0].start if job.attempts else None
        if first is not None and last[1] is not None and first.at + tolerance < last[0]:
            yield Violation("order", job.id, "it began before one that was put before it had ended", first, last[1])


def _at_work_until(job: JobHistory) -> tuple[int, HistoryEvent | None]:
    if not job.attempts:
        return -1, None
    last = job.attempts[-1]
    if last.crashed or last.end is None:
        return last.start.at, last.start
    return last.until, last.end


def parents(history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """A node of a flow begins after its parents have ended."""
    for node in history.nodes:
        job = history.jobs.get(node.job)
        if job is None or not job.attempts:
            continue
        first = job.attempts[0].start
        for parent in node.parents:
            over = _over_since(history.jobs.get(parent))
            if over is None:
                yield Violation("parents", node.job, f"it began, and its parent {parent} has not ended", first, node)
            elif isinstance(over, Ended) and first.at + tolerance < over.at:
                yield Violation("parents", node.job, f"it began before its parent {parent} had ended", first, over)


def _over_since(job: JobHistory | None) -> Ended | FinalState | None:
    """What first says that the job is over: an end that says so, or the last one of a job that is."""
    if job is None:
        return None
    final = next(job.final_ends(), None)
    if final is None and job.final is not None and job.final.state in FINISHED_STATES:
        # Without an end, as for one that was cancelled or that runs no code, nobody knows when.
        return job.ends[-1] if job.ends else job.final
    return final


def flow(history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """A flow ends once, and none of its nodes begins after that, unless somebody has it run again."""
    for name, ends in history.flow_ends.items():
        itself = history.jobs.get(name)
        for before, after in pairwise(ends):
            if itself is None or not itself.is_revived(before.at - tolerance, after.at):
                yield Violation("flow", name, "the flow ended twice", before, after)
    for node in history.nodes:
        yield from _after_flow(node.flow, history.jobs.get(node.job), history, tolerance)
    if history.read is not None and history.read.drained and history.flow_ends:
        for name, node in {node.flow: node for node in history.nodes}.items():
            if name not in history.flow_ends:
                yield Violation("flow", name, "the flow has not ended", node, history.read)


def _after_flow(name: str, job: JobHistory | None, history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    ends = history.flow_ends.get(name)
    if job is None or not job.attempts or not ends:
        return
    itself = history.jobs.get(name)
    last = job.attempts[-1]
    place = bisect_right(ends, last.claimed - tolerance - 1, key=lambda end: end.at)
    if not place or job.is_revived(ends[place - 1].at - tolerance):
        return
    if itself is None or not itself.is_revived(ends[place - 1].at - tolerance):
        yield Violation("flow", job.id, "a node began after the flow had ended", last.start, ends[place - 1])


def sums(history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """The store's history has counted what was put and what ended."""
    for told in history.sums:
        jobs = [job for job in history.puts(told.task) if job.put is None or job.put.counted]
        low, high = _count_bounds(jobs)
        for name, count in told.counts.items():
            if name in low and not low[name] <= count <= high[name]:
                text = f"it counted {name} {count}, and {low[name]} to {high[name]} are known"
                yield Violation("sum", told.task or "all tasks", text, told)


def _count_bounds(jobs: Sequence[JobHistory]) -> tuple[dict[str, int], dict[str, int]]:
    """What is known to have been put and to have ended, and what may have been besides."""
    states = [job.final.state if job.final is not None else "" for job in jobs]
    # Who was run again may have ended before, too; of one that is not in the store nobody knows the end.
    unknown = states.count("") + sum(len(job.revivals) for job in jobs)
    sure = sum(job.put is not None or job.final is not None for job in jobs)
    low = {"put": sure, "done": states.count("done"), "dead": states.count("dead"), "cancelled": 0, "expired": 0}
    high = {name: count + unknown for name, count in low.items()} | {"put": len(jobs)}
    cancelled = states.count("cancelled") + unknown
    return low, high | {"cancelled": cancelled, "expired": cancelled}


def left(history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """Nothing is left in the store that no job needs."""
    for leftover in history.leftovers:
        yield Violation("left", leftover.name, f"{leftover.count} of {leftover.what} left over", leftover)


GROUP_RULES: tuple[GroupRule, ...] = (limit, rate, key, order, parents, flow, sums, left)
