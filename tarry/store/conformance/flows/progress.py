"""Promises about the record of a task's steps, which is part of a job's progress."""

import pytest

from tarry.model import lifecycle
from tarry.model.duration import HOUR
from tarry.model.job import State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Lost, Outcome, Released, Returned, Snoozed, Suspended
from tarry.store.conformance.cases.flows import FlowCase, flow_of
from tarry.store.conformance.cases.jobs import FAILED, NOW, RETRY, running, seen, settle, taken
from tarry.store.rules.base import Store

STEPS = b'[null,"",1,0,"",[["charge",7]]]'


class StepKeeping(FlowCase):
    """Steps: kept with the job."""

    def test_saved_says_for_whom(self, store: Store) -> None:
        """A worker that has lost a job learns it before it does the next step."""
        one, two = running(store, 2)
        marks = [(one.id, one.epoch, STEPS), (two.id, two.epoch + 1, STEPS), (two.id, two.epoch, STEPS)]
        assert store.save_progress("ann", marks) == [True, False, True]
        assert store.save_progress("bob", marks) == [False] * 3
        assert store.save_progress("ann", []) == []
        settle(store, one, Lost())
        assert store.save_progress("ann", marks) == [False, False, True]

    @pytest.mark.parametrize("outcome", [Released(), Lost(), Lost(on=True), FAILED, Snoozed(0), Suspended(NOW)])
    def test_steps_survive_every_change(self, store: Store, outcome: Outcome) -> None:
        """And come with the next claim."""
        (job,) = running(store)
        store.save_progress("ann", [(job.id, job.epoch, STEPS)])
        settle(store, job, outcome, RETRY)
        (again,) = taken(store, now=NOW + HOUR)
        assert (again.progress, again.epoch) == (STEPS, 2)
        assert store.apply([lifecycle.cancel(again, DEFAULT, NOW)], NOW) == [True]
        assert store.apply([lifecycle.run_now(seen(store, job), NOW)], NOW) == [True]
        assert taken(store, now=NOW + HOUR)[0].progress == STEPS

    def test_steps_of_a_node(self, store: Store) -> None:
        """A node has steps as any job."""
        new = flow_of(store, [[], [1]])
        store.flows.insert(new, NOW)
        (job,) = taken(store)
        assert store.save_progress("ann", [(job.id, job.epoch, STEPS)]) == [True]
        assert settle(store, job, Returned()).progress == STEPS
        assert seen(store, new.nodes[1]).state is State.READY
