"""Plain ends, by far the most frequent changes: a running job finishes or is forgotten, and nothing else in it changes.

They need no look at the job: the statement that ends the attempts has the fence, and the number of rows that it changes
tells whether all were as they were seen. An exchange with a look takes 4 round trips, not 3, and 1.3 times as long.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from tarry.model.change import Change
from tarry.model.job import LABEL_MARK, State
from tarry.store.mysql import sql
from tarry.store.mysql.link.connection import StatementResult
from tarry.store.mysql.link.literals import bounded_statements, chunks, id_list, id_table, raw, text
from tarry.store.mysql.link.mysql_errors import NotAsSeen
from tarry.store.mysql.sql import ALREADY, DIFFERING, note_literal
from tarry.store.shared.state_codes import CODE


class ChangePlan:
    """Statements that make changes, and for some of them how many rows they must change."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self._expected: list[int | None] = []

    def add(self, statement: str, rows: int | None = None) -> None:
        """Adds a statement. rows: how many it must change; None: any number."""
        self.statements.append(statement)
        self._expected.append(rows)

    def check(self, answers: Sequence[StatementResult]) -> None:
        """NotAsSeen unless each statement changed as many rows as it must."""
        for answer, expected in zip(answers, self._expected, strict=True):
            if expected is not None and answer.changed != expected:
                raise NotAsSeen("jobs are not as they were seen")


def is_plain_end(change: Change) -> bool:
    """Whether a running job finishes or is forgotten, and nothing else in it changes."""
    return (
        change.was is State.RUNNING
        and (change.to is None or change.to.finished)
        and change.due is None
        and change.queue is None
        and change.priority is None
        and change.expires is None
        and change.body is None
        and change.attempts is None
        and change.seen_times is None
        and not change.key_held_until
    )


def need_no_look(changes: Sequence[Change]) -> bool:
    """Whether all are plain ends, of different jobs."""
    return all(map(is_plain_end, changes)) and len({change.id for change in changes}) == len(changes)


def leave_running(changes: Iterable[Change], plan: ChangePlan) -> None:
    """Ends attempts. The fence: only jobs that the owner runs in that epoch."""
    attempts: defaultdict[tuple[int, str], list[bytes]] = defaultdict(list)
    for change in changes:
        attempts[change.epoch, change.owner].append(change.id)
    for (epoch, owner), members in attempts.items():
        fence = f"AND p.epoch = {epoch} AND p.owner = {text(owner)}"
        for ids in chunks(members):
            plan.add(f"{sql.LEAVE_RUNNING.format(id_table(ids))} {fence}", len(ids))


def lose_keys(changes: Iterable[Change], plan: ChangePlan) -> None:
    """Deletes the keys of jobs that no longer hold one."""
    ids = [change.id for change in changes if change.to is None or change.key_held_until == 0]
    for part in chunks(ids):
        plan.add(f"{sql.LOSE_KEYS.format(id_table(part))} AND j.key IS NOT NULL")


def lose_labels(changes: Sequence[Change], plan: ChangePlan) -> None:
    """Takes the jobs that are forgotten out of the index of labels."""
    # An end of an attempt has the job with it, so that jobs without labels cost no statement.
    gone = [change for change in changes if change.to is None]
    for statement in sql.unlabel([one.id for one in gone if one.job is None or LABEL_MARK in one.job.headers]):
        plan.add(statement)


def write_ends(changes: Iterable[Change], plan: ChangePlan) -> None:
    """Writes the ends into the jobs' rows: few statements for all that end alike; notes may differ."""
    alike: defaultdict[str, list[tuple[bytes, str]]] = defaultdict(list)
    for change in changes:
        assert change.to is not None
        alike[_assignments(change, change.to)].append((change.id, note_literal(change.note, change.to)))
    for assignments, members in alike.items():
        # Jobs with the most frequent note need only their ids in the statement; all others need their note too.
        usual, count = Counter(note for _, note in members).most_common(1)[0]
        same = [id for id, note in members if note == usual] if count > 1 else []
        for ids in chunks(same):
            where = f"WHERE id IN ({id_list(ids)}) AND state = 2"
            plan.add(f"UPDATE tarry_job FORCE INDEX (PRIMARY) SET {assignments}, note = {usual} {where}", len(ids))
        apart = sorted(member for member in members if not same or member[1] != usual)
        values = (f"({raw(id)},{note})" for id, note in apart)
        for statement in bounded_statements(
            DIFFERING.format("note"), values, f"{ALREADY}{assignments}, note = VALUES(note)"
        ):
            plan.add(statement)


def _assignments(change: Change, to: State) -> str:
    held = "" if change.key_held_until is None else f", key_held_until = {change.key_held_until}"
    return (
        f"state = {CODE[to]}, state_since = {change.state_since}, failures = {change.failures},"
        f" crashes = {change.crashes}, keep_until = {change.keep_until}{held}"
    )
