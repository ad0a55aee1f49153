"""What a store's server may have forgotten as it died, and which violations come of nothing else.

A server that has forgotten a claim gives the job away once more, in the same epoch. So the history is judged as each
life of the server knew it: up to a death without what came later, and after it without what was forgotten. A rule that
holds in each of these was not broken by tarry.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from msgspec import Struct

from tarry.testing.history_events import Ended, FinalState, HistoryEvent, Started, StoreDied, StoreRead
from tarry.testing.history_rules import Violation
from tarry.testing.job_history import NEVER

EXCUSABLE = frozenset(
    {"writer", "epoch", "end", "twice", "fence", "after_end", "state", "early", "overlap", "limit", "rate", "order"}
)
"""Rules about attempts and their ends. Nothing else is forgotten: no put (`lost`), so no key, no cancel and no step."""

Judge = Callable[[Iterable[HistoryEvent]], Iterator[Violation]]


class _AttemptEvent(Struct, frozen=True, gc=False):
    """An event of an attempt. claimed: when its attempt was claimed; NEVER: no start of it is known. settled: when the
    store accepted it, if it is a settled end."""

    event: Started | Ended
    claimed: int
    settled: int | None = None

    def is_known(self, death: StoreDied) -> bool:
        """Whether the store knew it before the death."""
        return (self.claimed if self.settled is None else self.settled) <= death.at


class Excuses:
    """Which violations of a history a server that died explains. judge: all violations of a history."""

    def __init__(self, history: Sequence[HistoryEvent], tolerance: int, judge: Judge) -> None:
        self._history, self._tolerance, self._judge = history, tolerance, judge
        deaths = (one for one in history if isinstance(one, StoreDied) and one.forgets > 0)
        self._deaths = sorted(deaths, key=lambda death: death.at)

    def cover(self, violation: Violation) -> bool:
        """Whether it comes only of what was forgotten."""
        if not self._deaths or violation.rule not in EXCUSABLE:
            return False
        return (violation.rule, violation.job) not in self._still_violated

    @cached_property
    def _still_violated(self) -> set[tuple[str, str]]:
        """The rules that were broken in a life of the server, and by whose job."""
        return {(one.rule, one.job) for life in self._lives() for one in self._judge(life)}

    def _lives(self) -> Iterator[list[HistoryEvent]]:
        """The history as each life of the server knew it."""
        attempts = list(_attempt_events(self._history))
        others = [event for event in self._history if not isinstance(event, Started | Ended)]
        before = [event for event in others if not isinstance(event, FinalState | StoreRead)]
        for death in self._deaths:
            yield [*before, *(one.event for one in attempts if one.is_known(death))]
            attempts = self._without_forgotten(attempts, death)
        yield [*others, *(one.event for one in attempts)]

    def _without_forgotten(self, attempts: Sequence[_AttemptEvent], death: StoreDied) -> list[_AttemptEvent]:
        since = death.at - death.forgets - self._tolerance
        again = self._epochs_after(attempts, death)

        def is_forgotten(one: _AttemptEvent) -> bool:
            if since <= one.claimed <= death.at and again.get(one.event.job, NEVER) <= one.event.epoch:
                return True
            return one.settled is not None and since <= one.settled <= death.at

        return [one for one in attempts if not is_forgotten(one)]

    def _epochs_after(self, attempts: Sequence[_AttemptEvent], death: StoreDied) -> dict[str, int]:
        """The first epoch that each job had or could have had after a death. An epoch that was given before is given
        again only if its claim was forgotten."""
        found = {event.job: event.epoch + 1 for event in self._history if isinstance(event, FinalState)}
        for one in attempts:
            if isinstance(one.event, Started) and one.claimed > death.at:
                found[one.event.job] = min(found.get(one.event.job, NEVER), one.event.epoch)
        return found


def _attempt_events(history: Iterable[HistoryEvent]) -> Iterator[_AttemptEvent]:
    """Each start and each end, with the claim of its attempt. If one owner had two attempts in one epoch, the first end
    is that of the first."""
    claims: dict[tuple[str, int, str], list[int]] = {}
    ends: dict[tuple[tuple[str, int, str], bool], list[Ended]] = {}
    for event in history:
        if isinstance(event, Started):
            claimed = event.claimed or event.at
            claims.setdefault((event.job, event.epoch, event.owner), []).append(claimed)
            yield _AttemptEvent(event, claimed)
        elif isinstance(event, Ended):
            ends.setdefault(((event.job, event.epoch, event.owner), event.settled), []).append(event)
    for (attempt, _), of_attempt in ends.items():
        known = sorted(claims.get(attempt, ()))
        for place, end in enumerate(sorted(of_attempt, key=lambda one: one.at)):
            # An end too many is one of the last attempt.
            claimed = known[min(place, len(known) - 1)] if known else NEVER
            yield _AttemptEvent(end, claimed, end.at if end.settled else None)
