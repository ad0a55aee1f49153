"""`tarry flows approvals`, `approve` and `signal`."""

import argparse
from functools import partial

import msgspec

from tarry.cli.printing import format_ago, partial_answer, print_json, print_table
from tarry.client.acting import current_actor
from tarry.client.client import Client
from tarry.client.flows.approvals import approval_record, decide, find_approvals, waiting_approvals
from tarry.client.flows.signals import make_signal
from tarry.errors import UsageError
from tarry.model.duration import SECOND
from tarry.model.quantity import quantity
from tarry.tasks.durable.waiting import APPROVE, Approval
from tarry.terminal import say


def list_approvals(client: Client, args: argparse.Namespace) -> int:
    """What waits for a person; status 0."""
    found = partial_answer(partial(waiting_approvals, client.store, args.question))
    records = [approval_record(one) for one in found]
    if args.json:
        print_json(records)
    elif not records:
        say("Nothing waits for an approval.")
    else:
        now = client.clock.now()
        rows = [
            (
                one.key,
                one.question,
                one.task,
                one.id,
                format_ago(round(one.since * SECOND), now),
                "-" if one.until is None else format_ago(round(one.until * SECOND), now),
            )
            for one in records
        ]
        print_table(("key", "question", "task", "job", "asked", "over"), rows)
    return 0


def approve(client: Client, args: argparse.Namespace) -> int:
    """Decides; status 0."""
    if len(args.ids) != 1:
        raise UsageError("approve which? tarry flows approve KEY; `tarry flows approvals` lists what waits")
    (key,) = args.ids
    decision = Approval(not args.no, current_actor().name, args.note or "")
    found = find_approvals(client.store, key, args.question)
    woken = decide(client.store, client.clock, found, decision)
    if args.json:
        print_json({"key": key, "question": found[0].question, "ok": decision.ok, "by": decision.by, "woken": woken})
    else:
        done = "refused" if args.no else "approved"
        say(f"{found[0].question!r} {done}: {quantity(woken)} {'goes' if woken == 1 else 'go'} on")
    return 0


def send_signal(client: Client, args: argparse.Namespace) -> int:
    """Sends a signal; status 0."""
    if len(args.ids) != 2:
        raise UsageError("signal what to whom? tarry flows signal NAME KEY")
    name, key = args.ids
    if name.startswith(APPROVE):
        raise UsageError(f"{name}: decisions are made by `tarry flows approve KEY`, which keeps who made them")
    value = _value(args.value)
    woken = client.store.flows.signal(make_signal(client.clock.now(), name, key, value, args.id), client.clock.now())
    if args.json:
        print_json({"woken": woken})
    elif woken:
        say(f"{quantity(woken)} {'goes' if woken == 1 else 'go'} on")
    else:
        say("Nothing waits for it now; it is kept for jobs that will, for 30 days.")
    return 0


def _value(text: str | None) -> object:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"""--value {text}: no JSON ({error}); text is written as '"text"'""") from None
