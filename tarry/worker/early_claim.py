"""Claims at the end of a sleep, where the store can (`Store.sleep_and_claim`): then a job that comes to an idle worker
needs no call of the store after the wake-up."""

from collections.abc import Sequence

from tarry.store.rules.base import Exchange, NextClaim, Store, Want
from tarry.store.rules.sleeper import Wakeup
from tarry.worker.claim_plan import ClaimPlan


class EarlyClaim:
    """Keeps what the last sleep brought until it is taken. lease: microseconds."""

    def __init__(self, store: Store, owner: str, lease: int, plan: ClaimPlan) -> None:
        self._store, self._owner, self._lease, self._plan = store, owner, lease, plan
        self._wants: Sequence[Want] = ()
        self._answer: Exchange | None = None

    def count(self) -> int:
        """How many jobs wait to be taken."""
        return len(self._answer.jobs) if self._answer else 0

    def sleep(self, wakeup: Wakeup, limit: int, seconds: float, also: Sequence[int]) -> None:
        """Sleeps as `Wakeup.sleep`, and claims up to `limit` jobs. StoreError: jobs may have been claimed that nobody
        knows of."""
        # Of jobs that fall due meanwhile some may be of queues that are not known yet. Any claim makes those ready, and
        # the next step looks for their queues.
        self._wants = self._plan.wants(limit, due=False, may_search=False) if limit else ()
        if self._wants:
            claim = NextClaim(self._wants, limit, self._owner, self._lease)
            self._answer = self._store.sleep_and_claim(wakeup, seconds, also, claim)
        else:
            wakeup.sleep(seconds, also)

    def take(self) -> Exchange | None:
        """The answer of the store; None if it made no claim."""
        # Only once: what it brought is the caller's from now on.
        answer, self._answer = self._answer, None
        if answer is not None:
            self._plan.record(self._wants, answer.jobs)
        return answer
