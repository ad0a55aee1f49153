"""Large results are kept outside of the store (`[payloads]`), and are written there by the attempt that made them: the
worker's own thread, which settles all others, must not wait for that."""

from tarry.errors import StoreError
from tarry.model.checks.texts import text_of
from tarry.model.outcome import Outcome, Raised, Returned, outcome_note
from tarry.model.retry import qualified_name
from tarry.store.rules.base import Store
from tarry.tasks.running import Batch, Running

WITHIN = 600.0
"""Seconds after which a worker that still writes results counts as stuck: calls of a place end before."""


def has_large(running: Running, outcome: Outcome, store: Store) -> bool:
    """Whether this attempt has a result that is not kept in the store."""
    own = running.outcomes.values() if isinstance(running, Batch) else ()
    return any(_is_large(one, store) for one in (outcome, *own))


def _is_large(outcome: Outcome, store: Store) -> bool:
    return isinstance(outcome, Returned) and len(outcome.value) > store.keeps_apart_over


def keep(running: Running, outcome: Outcome, store: Store) -> Outcome:
    """The outcome with a reference in place of each large result; may block."""
    if isinstance(running, Batch):
        for member, own in running.outcomes.items():
            running.outcomes[member] = _keep_one(member, own, store)
    return _keep_one(running, outcome, store)


def _keep_one(running: Running, outcome: Outcome, store: Store) -> Outcome:
    if not isinstance(outcome, Returned) or not _is_large(outcome, store):
        return outcome
    try:
        return Returned(store.keep_result(running.job, outcome.value), outcome.status)
    except StoreError as error:
        # The task is tried again by its own rules: what it did is done twice then.
        text = f"it returned, and its result cannot be kept: {text_of(error)}"
        kinds = tuple(qualified_name(kind) for kind in type(error).__mro__ if kind not in (object, BaseException))
        return Raised(outcome_note(kinds[0], text), kinds)
