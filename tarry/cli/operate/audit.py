"""`tarry audit`, in words: who did what."""

from functools import partial

from tarry.cli.operate.method_command import CommandCall, Subject, add_methods
from tarry.cli.shared.printing import format_clock, print_table
from tarry.model.duration import SECOND
from tarry.operate.audit import METHODS, ActList, ActRecord


def _print_list(_: CommandCall, found: ActList) -> None:
    rows = [
        (format_clock(round(one.at * SECOND)), one.who or "-", _origin(one), one.act, one.subject, one.outcome)
        for one in found.acts
    ]
    print_table(("at", "who", "from", "act", "subject", "outcome"), rows)


def _origin(one: ActRecord) -> str:
    return " ".join(part for part in (one.address, f"({one.via})" if one.via else "") if part)


SUBJECT = Subject(
    METHODS,
    {"list": _print_list},
    "who did what: to jobs, queues, limits, schedules, tasks, tokens",
    """Lists the last acts of people and programs by the HTTP API, the console and these commands, the newest first;
    also what was refused. The store keeps the last 2,000 of each, for 90 days. What was done to a job is also in `tarry
    jobs show ID`, as long as the job is kept.""",
)
add = partial(add_methods, "audit", SUBJECT)
