"""What attempts, people, takers and the mover do to a job, by name: a message in the model carries the name, and the
change is computed by `lifecycle` from the job as it was seen."""

from collections.abc import Callable

from msgspec.structs import replace

from tarry.model import lifecycle, moving
from tarry.model.change import Change
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.lifecycle import Rules
from tarry.model.outcome import (
    Cancelled,
    Expired,
    HeldBack,
    Lost,
    Outcome,
    Quarantined,
    Raised,
    Released,
    Returned,
    Snoozed,
    Suspended,
    TimedOut,
    Unknown,
    Unread,
)
from tarry.model.retry import Retry
from tests.exhaustive.store_state import LATER, NOW

MOST_FAILURES = 2
RULES = Rules(retry=Retry(MOST_FAILURES - 1))
NOTE = b'{"type":"E"}'

OUTCOMES: dict[str, Outcome] = {
    "returned": Returned(),
    "raised": Raised(NOTE, ("Exception",)),
    "failed": Raised(NOTE, ("Exception",), final=True),
    "timed out": TimedOut(NOTE),
    "cancels itself": Cancelled(),
    "expired": Expired(),
    "snoozed": Snoozed(SECOND),
    "suspended": Suspended(LATER),
    "unknown": Unknown(),
    "unread": Unread("away"),
    "quarantined": Quarantined(),
    "held back": HeldBack(),
    "released": Released(),
    "interrupted": Released(has_started=True),
    "lease lost": Lost(),
    "died": Lost(on=True),
}
DECISIONS: dict[str, Callable[[Job], Change]] = {
    "cancel": lambda job: lifecycle.cancel(job, RULES, NOW),
    "make way": lambda job: lifecycle.make_way(job, RULES, NOW),
    "run now": lambda job: lifecycle.run_now(job, NOW),
    "put off": lambda job: lifecycle.move(job, NOW, due=LATER),
    "postpone": lambda job: lifecycle.postpone(job, replace(job, due=LATER), NOW),
    "replace": lambda job: lifecycle.replace_call(job, replace(job, due=NOW, expires=0), NOW),
    # By name: a seeded mistake takes the place of the function later.
    "delete": lambda job: lifecycle.forget(job),  # noqa: PLW0108
    "park": lambda job: moving.park(job),  # noqa: PLW0108
    "restore": lambda job: moving.restore(job),  # noqa: PLW0108
}
# What a program says that takes jobs through a door.
TAKER_ACTS: dict[str, Callable[[Job], Change]] = {
    "given back": lambda job: lifecycle.give_back(job, NOW),
    "buried": lambda job: lifecycle.bury(job, RULES, NOW),
    "discarded": lambda job: lifecycle.discard(job, RULES, NOW),
}
BY_HAND = ("cancel", "make way", "run now", "put off", "postpone", "replace", "delete")
COUNTS_FAILURE = ("raised", "failed", "timed out", "died")
ENDING = ("returned", "failed", "cancels itself", "expired", "buried", "discarded")
NO_RECORD = ("returned", "suspended", "discarded", "held back")


def compute(job: Job, act: str) -> Change | None:
    """The change; None: it is not possible."""
    try:
        if act in OUTCOMES:
            return lifecycle.after(job, OUTCOMES[act], RULES, NOW)
        if act in TAKER_ACTS:
            return TAKER_ACTS[act](job)
        return DECISIONS[act](job)
    except lifecycle.NotPossible:
        return None
