"""The hot path: what ended is settled and new jobs are claimed, in one transaction and three round trips: changes and
the fronts of the lines; what the chosen jobs bring; their start and the commit."""

from collections.abc import Sequence

from msgspec import Struct

from tarry.model.change import Change
from tarry.model.job import Job
from tarry.store.base import Exchange, Want
from tarry.store.mysql import sql
from tarry.store.mysql.apply import Applying
from tarry.store.mysql.claim import OpenLine, Reader, Start, promote
from tarry.store.mysql.halves import Half
from tarry.store.mysql.lanes import LaneClaim
from tarry.store.mysql.link import COMMIT, Link
from tarry.store.mysql.open_lanes import vain
from tarry.store.mysql.settings import TAKE_TURN, Said, Settings, said
from tarry.store.mysql.swift import swift
from tarry.store.shared.lanes import earliest


class Asked(Struct, frozen=True):
    """What `exchange` is asked for, and how."""

    changes: Sequence[Change]
    wants: Sequence[Want]
    limit: int
    owner: str
    now: int
    lease: str
    """The statement that prolongs the owner's lease; none if it still runs for long enough."""
    news: tuple[Sequence[str], Sequence[str]]
    """What tells other hosts of the changes, and of jobs that begin."""
    only: Sequence[Half]
    """The halves of one line that alone gave jobs the last time."""
    careful: bool
    """Look before changing: the last try was mistaken."""


class Done(Struct, frozen=True):
    """What came of it."""

    answer: Exchange
    only: Sequence[Half]
    strays: bool


class Exchanging:
    """One exchange, on one connection."""

    def __init__(self, link: Link, settings: Settings, reader: Reader, asked: Asked) -> None:
        self._link, self._settings, self._reader, self._asked = link, settings, reader, asked
        wants = [want for want in asked.wants if want.queue not in settings.paused]
        self._wants = wants if asked.limit > 0 else []
        self._start = Start(link, asked.owner, asked.now, settings)
        self._open = OpenLine(reader, self._wants, asked.limit, asked.only)

    def run(self) -> Done:
        """All of it, committed."""
        if self._settings.limits and self._wants and not self._asked.changes:
            found = vain(self._link, self._settings, self._wants, self._asked.now)
            if found is not None:
                return Done(Exchange([], [], found.again), (), False)
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
        due = self._finish(jobs, written, due, known)
        jobs.sort(key=lambda job: (-job.priority, job.due, job.id))
        return Done(Exchange(valid, jobs, earliest(due, again)), self._open.only(), self._start.strays)

    def _changed_in_turn(self) -> list[bool]:
        self._link.run("BEGIN", self._settings.look(), TAKE_TURN)
        applying = Applying(self._link, self._settings, self._asked.now)
        return applying.apply(self._asked.changes)

    def _changed(self) -> tuple[list[bool], Said]:
        """Which changes are valid, and what there is to claim; its front is read too."""
        changes = self._asked.changes
        plan = None if self._asked.careful else swift(changes)
        if plan is None:
            self._link.run("BEGIN", self._settings.look())
            valid = Applying(self._link, self._settings, self._asked.now).apply(changes)
            begin = list[str]()
        else:
            valid, begin = [True] * len(changes), ["BEGIN", *plan.statements]
        answers = self._link.run(*begin, self._settings.look(self._open.others()), *self._open.first())
        if plan is not None:
            plan.check(answers[1 : len(begin)])
        self._open.came(answers[len(begin) + 1 :])
        return valid, said(answers[len(begin)])

    def _claimed(self, said: Said) -> tuple[list[Job], list[str], int | None]:
        laned, exist = said.laned, said.exist
        if said.due is not None and said.due <= self._asked.now:
            self._promote()
            self._open = OpenLine(self._reader, self._wants, self._asked.limit, ())
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
        claim = LaneClaim(self._link, self._settings.limits, self._reader, self._start, self._asked.now)
        return claim.chosen(self._wants, self._asked.limit)

    def _promote(self) -> None:
        rows = self._link.rows(self._reader.promotable(self._asked.now))
        if rows:
            promote(self._link, [id for (id,) in rows], self._asked.now)

    def _finish(self, jobs: Sequence[Job], written: Sequence[str], due: int | None, known: bool) -> int | None:
        """Commits; when the next scheduled job falls due."""
        lease = [self._asked.lease] if jobs and self._asked.lease else []
        changed, began = self._asked.news
        told = changed if self._asked.changes else began if jobs else ()
        more = [] if known else [sql.NEXT_DUE]
        answers = self._link.run(*written, *lease, *told, COMMIT, *more)
        if known:
            return due
        rows = answers[-1].rows
        return int(rows[0][0]) if rows else None
