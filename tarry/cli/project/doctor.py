"""`tarry doctor`: what `tarry check` would have changed, the worst first."""

import argparse
from enum import IntEnum

from msgspec import Struct

from tarry.cli.check import check_facts
from tarry.cli.shared.printing import print_json
from tarry.model.quantity import quantity
from tarry.process.loading import CommandContext
from tarry.store.rules.base import Diagnostic
from tarry.terminal import print_line


class Urgency(IntEnum):
    """How bad it is if nothing is done; the lowest is the worst."""

    NOTHING_WORKS = 1
    JOBS_AT_RISK = 2
    JOBS_WAIT = 3
    COULD_BE_BETTER = 4


REASONS = {
    Urgency.NOTHING_WORKS: "nothing works until then",
    Urgency.JOBS_AT_RISK: "jobs may be lost, or read by others",
    Urgency.JOBS_WAIT: "jobs do not run as they should",
    Urgency.COULD_BE_BETTER: "slower than it could be",
}
_BY_NAME = (
    (
        Urgency.NOTHING_WORKS,
        ("configuration", "app", "store", "integrity", "schedules", "queues", "pid file", "server"),
    ),
    (
        Urgency.JOBS_AT_RISK,
        ("durability", "binary log", "eviction", "memory", "free disk", "file rights", "transport", "replicas"),
    ),
    (Urgency.COULD_BE_BETTER, ("round trip", "oldest transaction", "autovacuum", "functions")),
)
"""By the last words of a fact's name: facts of a shard begin with its URL."""


class Advice(Struct, frozen=True):
    """One thing to do. must: without it something is wrong, not only slow."""

    name: str
    value: str
    advice: str
    reason: str
    must: bool


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    doctor = commands.add_parser("doctor", help="what `tarry check` finds to change, the worst first")
    doctor.set_defaults(run=run_doctor)


def run_doctor(args: argparse.Namespace) -> int:
    """Status 1 if something must be done."""
    actions = list_actions(check_facts(CommandContext.of(args)))
    must = sum(action.must for action in actions)
    if args.json:
        print_json({"actions": actions, "ok": not must})
    else:
        for number, action in enumerate(actions, 1):
            print_line(f"{number}. {action.name}: {' '.join(action.advice.split())} ({action.reason})")
        print_line(_summary(must, len(actions) - must))
    return 1 if must else 0


def list_actions(facts: list[Diagnostic]) -> list[Advice]:
    """What is to do, the worst first; of the same urgency in the order in which it was found."""
    found = sorted(((urgency(fact), fact) for fact in facts if fact.advice), key=lambda pair: pair[0])
    return [
        Advice(fact.name, fact.value, fact.advice, REASONS[level], level < Urgency.COULD_BE_BETTER)
        for level, fact in found
    ]


def urgency(fact: Diagnostic) -> Urgency:
    """How bad it is. A name that is not listed counts as a part that does not run as it should."""
    for level, names in _BY_NAME:
        if any(fact.name == name or fact.name.endswith(f" {name}") for name in names):
            return level
    # A shard that is away has its URL as its name.
    return Urgency.NOTHING_WORKS if "://" in fact.name else Urgency.JOBS_WAIT


def _summary(must: int, should: int) -> str:
    if not must and not should:
        return "All is well."
    also = f"; {quantity(should, 'thing')} could be better" if should else ""
    return f"{quantity(must, 'thing')} to do{also}." if must else f"Nothing must be done{also}."
