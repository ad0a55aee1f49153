"""Making changes at once. By far the most are of jobs that ran and are finished: those take as few statements as there
are kinds of them. If it then turns out that some were stale, everything is undone, and done as `mysql.apply` does."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from msgspec import Struct

from tarry.model.change import Change
from tarry.model.job import State
from tarry.store.mysql import sql
from tarry.store.mysql.errors import Conflict
from tarry.store.mysql.link import Answer
from tarry.store.mysql.sql import ALREADY, CODE, DIFFERING, among, filled, listed, noted, raw, some, text


class Mistaken(Conflict):
    """Not all was as it was hoped to be: undo it, and look first."""


class Swift(Struct, frozen=True):
    """Statements that end runs, and how many rows each must have changed."""

    statements: list[str]
    expected: list[int | None]

    def check(self, answers: Sequence[Answer]) -> None:
        """Mistaken unless all were valid."""
        for answer, expected in zip(answers, self.expected, strict=True):
            if expected is not None and answer.changed != expected:
                raise Mistaken


def swift(changes: Sequence[Change]) -> Swift | None:
    """The way to make these at once; None where one has to look."""
    if not all(map(_ends, changes)) or len({change.id for change in changes}) < len(changes):
        return None
    plan = Swift([], [])
    _leave_running(changes, plan)
    gone = [change.id for change in changes if change.to is None]
    kept = [change for change in changes if change.to is not None]
    _lose_keys([change.id for change in changes if change.holds is not None or change.to is None], plan)
    _end(kept, plan)
    for ids in some(gone):
        _add(plan, sql.FORGET.format(among(ids)), len(ids))
    for ids in some([change.id for change in kept]):
        _add(plan, sql.COME_FINISHED.format(listed(ids)), len(ids))
    return plan


def _ends(change: Change) -> bool:
    return (
        change.was is State.RUNNING
        and (change.to is None or change.to.finished)
        and change.due is None
        and change.queue is None
        and change.priority is None
        and change.expires is None
        and change.body is None
        and not change.holds
    )


def _add(plan: Swift, statement: str, expected: int | None) -> None:
    plan.statements.append(statement)
    plan.expected.append(expected)


def _leave_running(changes: Sequence[Change], plan: Swift) -> None:
    """The fence: only what that owner runs in that epoch leaves."""
    attempts: defaultdict[tuple[int, str], list[bytes]] = defaultdict(list)
    for change in changes:
        attempts[change.epoch, change.owner].append(change.id)
    for (epoch, owner), members in attempts.items():
        fence = f"AND p.epoch = {epoch} AND p.owner = {text(owner)}"
        for ids in some(members):
            _add(plan, f"{sql.LEAVE_RUNNING.format(among(ids))} {fence}", len(ids))


def _lose_keys(ids: Sequence[bytes], plan: Swift) -> None:
    for part in some(ids):
        _add(plan, f"{sql.LOSE_KEYS.format(among(part))} AND j.job_key IS NOT NULL", None)


def _end(kept: Sequence[Change], plan: Swift) -> None:
    alike: defaultdict[str, list[tuple[bytes, str]]] = defaultdict(list)
    for change in kept:
        assert change.to is not None
        alike[_ending(change)].append((change.id, noted(change.note, change.to)))
    for ending, members in alike.items():
        usual, count = Counter(note for _, note in members).most_common(1)[0]
        same = [id for id, note in members if note == usual] if count > 1 else []
        for ids in some(same):
            where = f"WHERE id IN ({listed(ids)}) AND state = 2"
            _add(plan, f"UPDATE tarry_job FORCE INDEX (PRIMARY) SET {ending}, note = {usual} {where}", len(ids))
        apart = sorted(member for member in members if not same or member[1] != usual)
        values = (f"({raw(id)},{note})" for id, note in apart)
        for statement in filled(DIFFERING.format("note"), values, f"{ALREADY}{ending}, note = VALUES(note)"):
            _add(plan, statement, None)


def _ending(change: Change) -> str:
    """What is alike for many."""
    assert change.to is not None
    holds = "" if change.holds is None else f", holds = {change.holds}"
    return (
        f"state = {CODE[change.to]}, since = {change.since}, failures = {change.failures}, losses = {change.losses},"
        f" until = {change.until}{holds}"
    )
