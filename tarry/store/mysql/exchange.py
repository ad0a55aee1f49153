"""The hot path: settles ended attempts and claims new jobs, in one transaction and three round trips: the changes and
the fronts of the lines; the data of the chosen jobs; their start and the commit."""

from collections.abc import Sequence

from msgspec import Struct

from tarry.model.change import Change
from tarry.model.job import Job
from tarry.store.mysql import sql
from tarry.store.mysql.apply import ChangeApplier
from tarry.store.mysql.claim import OpenLineClaim, Reader, Start, promote
from tarry.store.mysql.flows import FlowsAhead, LinkFlowTables
from tarry.store.mysql.history import to_journal
from tarry.store.mysql.insert import one_by_one
from tarry.store.mysql.lane_reader import MysqlLaneReader
from tarry.store.mysql.link.connection import COMMIT, MysqlConnection, StatementResult
from tarry.store.mysql.open_lanes import LatenessLine, look_for_laned, nothing_to_claim
from tarry.store.mysql.plain_ends import need_no_look
from tarry.store.mysql.settings import TAKE_TURN, LookResult, StoreSettings, look_result
from tarry.store.rules.base import Exchange, Want
from tarry.store.rules.flow_settle import Settled
from tarry.store.rules.history.journal import record_of_valid
from tarry.store.rules.lanes import earliest
from tarry.store.sql.flow_signals import SqlSignals
from tarry.store.sql.flow_tables import touching_flows
from tarry.store.sql.lane_claim import claim_in_lanes


class ExchangeRequest(Struct, frozen=True):
    """The arguments of one `exchange`, and what the store knows for it."""

    changes: Sequence[Change]
    wants: Sequence[Want]
    limit: int
    owner: str
    now: int
    lease: str
    """The statement that prolongs the owner's lease; empty if the lease still runs for long enough."""
    news: tuple[Sequence[str], Sequence[str]]
    """The statements that tell other hosts of the changes, and of jobs that begin."""
    only: Sequence[LatenessLine]
    """The halves of the one line that gave all jobs the last time."""
    careful: bool
    """Look before changing: on the last try some jobs were not as they were seen."""


class ExchangeResult(Struct, frozen=True):
    """The answer of one exchange, and what the store has to know for the next."""

    answer: Exchange
    only: Sequence[LatenessLine]
    has_unlaned: bool


class MysqlExchange:
    """One exchange, on one connection."""

    def __init__(self, link: MysqlConnection, settings: StoreSettings, reader: Reader, asked: ExchangeRequest) -> None:
        self._link, self._settings, self._reader, self._asked = link, settings, reader, asked
        self._settled = Settled()
        wants = [want for want in asked.wants if want.queue not in settings.paused]
        self._wants = wants if asked.limit > 0 else []
        self._start = Start(link, asked.owner, asked.now, settings, sql.RUNNING_ANYWAY if asked.careful else "")
        self._open = OpenLineClaim(reader, self._wants, asked.limit, asked.only)
        self._waits_for_ends = self._is_held_back = False

    def run(self) -> ExchangeResult:
        """Makes the whole exchange and commits it."""
        # Under limits a claim takes the turn. A look without it lets idle workers stay out of the others' way.
        if self._settings.limits and self._wants and not self._asked.changes:
            found = nothing_to_claim(self._link, self._settings, self._wants, self._asked.now)
            if found is not None:
                return ExchangeResult(Exchange([], [], found.again), (), False)
        jobs, written, again, due = list[Job](), list[str](), None, None
        if self._settings.limits:
            valid = self._changed_in_turn()
            if self._wants:
                self._promote()
                jobs, again = self._from_lanes()
            known = False
        else:
            valid, said = self._changed()
            due, known = said.due, not self._wants or said.due is None or said.due > self._asked.now
            if self._wants:
                jobs, written, again = self._claimed(said)
        written += to_journal(record_of_valid(self._asked.changes, valid))
        due = self._finish(jobs, written, due, known)
        # The rows came by id, not in the order of the claim.
        jobs.sort(key=lambda job: (-job.priority, job.due, job.id))
        return ExchangeResult(
            Exchange(
                valid,
                jobs,
                earliest(due, again),
                more_to_release=self._settled.more_to_release,
                is_held_back=self._is_held_back,
            ),
            self._open.only(),
            self._start.has_unlaned,
        )

    def _changed_in_turn(self) -> list[bool]:
        # The turn comes before any lock on jobs: ends lower levels, which only the one with the turn may write.
        applying = ChangeApplier(self._link, self._settings, self._asked.now)
        return self._apply_and_settle(applying, ["BEGIN", self._settings.look(), TAKE_TURN])[0]

    def _apply_and_settle(
        self, applying: ChangeApplier, before: Sequence[str], behind: Sequence[str] = ()
    ) -> tuple[list[bool], list[StatementResult]]:
        """Makes the changes and what they do to flows; answers which are valid, and what the statements `behind` found,
        which follow in the last packet. before: begins the transaction, and looks at what the changes rely on."""
        changes = self._asked.changes
        # As in `_changed`: without a look, if all are plain ends and nothing is to be learned of the jobs.
        if need_no_look(changes) and not self._asked.careful and not self._settings.limits:
            plan, valid = applying.plan(changes, all_plain=True), [True] * len(changes)
            left = ["BEGIN", *plan.statements]
        else:
            plan = None
            valid, left = applying.apply(changes, before)
        made = touching_flows(changes, valid)
        ahead = FlowsAhead(made)
        answers = self._link.run(*left, *ahead.statements())
        if plan is not None:
            plan.check(answers[1 : len(left)])
        ahead.came(answers[len(left) :])
        tables = LinkFlowTables(self._link, self._settings, ahead)
        if made:
            self._settled = tables.settle(made, self._asked.now, SqlSignals(tables).wait)
        return valid, tables.flush(*behind)

    def _changed(self) -> tuple[list[bool], LookResult]:
        """Which changes are valid, and the answer to the look; reads the fronts of the lines too."""
        changes = self._asked.changes
        applying = ChangeApplier(self._link, self._settings, self._asked.now)
        if touching_flows(changes):
            look = self._settings.look(self._open.others())
            valid, answers = self._apply_and_settle(
                applying, ["BEGIN", self._settings.look()], [look, *self._open.first()]
            )
            self._open.came(answers[1:])
            return valid, look_result(answers[0])
        # Hopes that all jobs are as they were seen, which saves a round trip; `check` finds out if they are not.
        if need_no_look(changes) and not self._asked.careful:
            plan, valid = applying.plan(changes, all_plain=True), [True] * len(changes)
            left = ["BEGIN", *plan.statements]
        else:
            plan = None
            valid, left = applying.apply(changes, ["BEGIN", self._settings.look()])
        answers = self._link.run(*left, self._settings.look(self._open.others()), *self._open.first())
        if plan is not None:
            plan.check(answers[1 : len(left)])
        self._open.came(answers[len(left) + 1 :])
        return valid, look_result(answers[len(left)])

    def _claimed(self, said: LookResult) -> tuple[list[Job], list[str], int | None]:
        laned, exist = said.laned, said.exist
        if said.due is not None and said.due <= self._asked.now:
            self._promote()
            # The jobs that just became ready may be in any line, so the fronts are read again.
            self._open = OpenLineClaim(self._reader, self._wants, self._asked.limit, ())
            self._open.came(self._link.run(*self._open.first()))
            laned, exist = bool(self._link.rows(sql.ANY_LANED)), []
        if laned:
            self._link.run(TAKE_TURN)
            jobs, again = self._from_lanes()
            return jobs, [], again
        self._open.look_at(self._link, exist)
        jobs = self._start.read(self._open.take(self._link))
        return jobs, self._start.statements(jobs), None

    def _from_lanes(self) -> tuple[list[Job], int | None]:
        reader = MysqlLaneReader(self._link, self._settings, self._reader, self._start, self._asked.now)
        again = claim_in_lanes(reader, self._wants, self._asked.limit, self._asked.now)
        self._waits_for_ends = len(reader.claimed) < self._asked.limit and reader.waits_for_ends
        return reader.claimed, again

    def _promote(self) -> None:
        rows = self._link.rows(self._reader.promotable(self._asked.now))
        if rows:
            promote(self._link, [(id, due) for id, due in rows], self._asked.now)

    def _finish(self, jobs: Sequence[Job], written: Sequence[str], due: int | None, known: bool) -> int | None:
        """Commits; answers when the next scheduled job is due. known: `due` is that time already."""
        lease = [self._asked.lease] if jobs and self._asked.lease else []
        changed, began = self._asked.news
        told = changed if self._asked.changes else began if jobs else ()
        # After the COMMIT in the same packet: the look holds no lock, and costs no round trip.
        more = [look_for_laned(self._wants)] if self._waits_for_ends else []
        answers = self._link.run(*written, *lease, *told, COMMIT, *more, *([] if known else [sql.NEXT_DUE]))
        if more:
            self._is_held_back = bool(answers[-1 if known else -2].rows[0][0])
        if known:
            return due
        rows = answers[-1].rows
        return int(rows[0][0]) if rows else None


def supersede(
    link: MysqlConnection, settings: StoreSettings, change: Change, job: Job, now: int, news: Sequence[str]
) -> bool:
    """As `Store.supersede`. job: with its lane. news: the statements that tell other hosts."""
    applying = ChangeApplier(link, settings, now)
    # As in an exchange: the turn comes before any lock on jobs.
    turn = [TAKE_TURN] if settings.limits else []
    (is_valid,), left = applying.apply([change], ["BEGIN", settings.look(), *turn])
    if is_valid:
        link.run(*left, *applying.keep_followed_place(change))
        is_valid = one_by_one(link.rows, [job], settings.number) == [job.id]
    if not is_valid:
        link.run("ROLLBACK")
        return False
    link.run(*to_journal(record_of_valid([change], [True])), *news, COMMIT)
    return True
