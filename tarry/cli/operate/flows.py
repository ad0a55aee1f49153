"""`tarry flows`, in words: look at flows, retry and cancel them; send signals, and decide what waits for a decision."""

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from functools import wraps
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from tarry.cli.operate.flow_tree import flow_lines
from tarry.cli.operate.method_command import (
    CommandCall,
    Subject,
    Words,
    add_methods,
    call_all,
    read_options,
    run_method,
)
from tarry.cli.shared.printing import confirm, format_ago, print_result, print_table, progress_bar
from tarry.client.flows.flow_records import FlowDetail, FlowRecord
from tarry.errors import JobNotFound, UsageError
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.lifecycle import NotPossible
from tarry.model.quantity import quantity
from tarry.operate.flows import METHODS, FlowCancelAnswer, FlowPage, FlowPath, FlowRetryAnswer, FlowsQuery, list_flows
from tarry.operate.method import convert_values
from tarry.operate.problem import RequestError
from tarry.operate.signals import METHODS as SIGNAL_METHODS
from tarry.operate.signals import ApprovalList, DecisionAnswer, SignalAnswer
from tarry.process.loading import CommandContext
from tarry.terminal import print_line

NARROWING = ("name", "key", "state")
_NARROW = " ".join(f"--{name}" for name in NARROWING)
CHANGED = {"retry": (State.DEAD, "retried"), "cancel": (State.RUNNING, "cancelled")}
"""Of each change, the flows that it is for unless --state says otherwise, and how it is called once done."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = add_methods("flows", SUBJECT, commands)
    command.usage = """tarry flows [list] [--name --key --state --limit]
       tarry flows show ID... | --name --key --state [--limit]
       tarry flows retry|cancel ID... | --name --key --state [--yes]
       tarry flows approvals [--question]
       tarry flows approve KEY [--no] [--note] [--question]
       tarry flows signal NAME KEY [--value JSON] [--id ID]"""
    command.add_argument("--yes", action="store_true", help="retry, cancel: do not ask")
    command.add_argument("--no", action="store_true", help="approve: refuse it")
    command.add_argument("--value", metavar="JSON", help="signal: what the job gets")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 1 where nothing could be done."""
    if args.names or args.action not in ("show", *CHANGED):
        return run_method("flows", SUBJECT, args)
    if not any(getattr(args, name) for name in NARROWING):
        raise UsageError(f"{args.action} which flows? Give ids, or narrow with {_NARROW}")
    if args.action in CHANGED:
        return _change_matching(args)
    call = CommandCall(CommandContext.of(args), args, list_flows, SUBJECT, "")
    newest = islice(_find_flows(call, _take_query(args)), 1)
    args.names = [one.id for one in newest]
    if not args.names:
        raise JobNotFound("no flow matches; `tarry flows` lists them")
    return run_method("flows", SUBJECT, args)


def _take_query(args: argparse.Namespace, state: str = "") -> FlowsQuery:
    """What the options ask for, which the method that is called then does not take. state: if they name none."""
    given = {name: getattr(args, name) for name in NARROWING}
    for name in NARROWING:
        setattr(args, name, None)
    given["state"] = given["state"] or state
    found: FlowsQuery = convert_values({name: value for name, value in given.items() if value}, FlowsQuery, "query")
    return found


def _find_flows(call: CommandCall, query: FlowsQuery) -> Iterator[FlowRecord]:
    """All flows that match, the newest first. Bounded: each page begins below the one before."""
    cursor: str | None = ""
    while cursor is not None:
        page: FlowPage = list_flows.handler(call, replace(query, cursor=cursor or None))
        yield from page.flows
        cursor = page.next


def _change_matching(args: argparse.Namespace) -> int:
    """Changes all that match, one by one, with one entry in the log of acts."""
    method, setup, subject = args.methods[args.action], CommandContext.of(args), _describe(args)
    state, done = CHANGED[args.action]
    whole = CommandCall(setup, args, method, SUBJECT, subject)
    # Found first, since the question names the number, and a flow that changed would be on no later page.
    found = [one.id for one in _find_flows(whole, _take_query(args, state))]
    match, them = ("matches", "it") if len(found) == 1 else ("match", "them")
    if found and not confirm(f"{quantity(len(found), 'flow')} {match}; {args.action} {them}?", args.yes):
        return 1

    @wraps(method.handler)
    def change(_: CommandCall, **options: Any) -> int:
        changed = 0
        for id in progress_bar(found, len(found), "flow"):
            one = CommandCall(setup, args, method, SUBJECT, id)
            with contextlib.suppress(RequestError, NotPossible, JobNotFound):
                changed += _is_done(method.handler(one, FlowPath(id), **options))
        return changed

    parts = {name: kind for name, kind in method.parts.items() if name != "path"}
    many = replace(method, handler=change, route="/v1/flows", parts=parts)
    (changed,) = call_all(setup, many, [whole], read_options(many, SUBJECT, args)).values() if found else (0,)
    said = f"{changed:,} of {quantity(len(found), 'flow')} {done}" if found else "No flow matches."
    print_result(args.json, {"matched": len(found), "changed": changed}, said)
    return 0


def _describe(args: argparse.Namespace) -> str:
    return " ".join(f"{name}={value}" for name in NARROWING if (value := getattr(args, name)))


def _read_decision(args: argparse.Namespace) -> Words:
    if not args.names:
        raise UsageError("approve which? tarry flows approve KEY; `tarry flows approvals` lists what waits")
    return args.names, {"ok": not args.no}


def _read_signal(args: argparse.Namespace) -> Words:
    if len(args.names) != 2:
        raise UsageError("signal what to whom? tarry flows signal NAME KEY")
    name, key = args.names
    return (), {"name": name, "key": key, "value": _decode(args.value)}


def _decode(text: str | None) -> object:
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"""--value {text}: no JSON ({error}); text is written as '"text"'""") from None


def _print_list(call: CommandCall, found: FlowPage) -> None:
    if not found.flows:
        print_line("No flow matches.")
        return
    now = call.client.clock.now()
    rows = [
        (
            one.id,
            one.name,
            one.key or "-",
            one.state.value if one.phase == "ended" else one.phase,
            f"{one.ended:,}/{one.size:,}",
            format_ago(round(one.created * SECOND), now),
        )
        for one in found.flows
    ]
    print_table(("id", "name", "key", "state", "ended", "made"), rows)
    if found.next:
        print_line(f"The newest {len(rows)}; --limit shows more.")


def _print_trees(call: CommandCall, _: Sequence[str], found: Sequence[FlowDetail]) -> None:
    now = call.client.clock.now()
    for one in found:
        print_line("\n".join(flow_lines(one, now)))


def _print_retried(_: CommandCall, names: Sequence[str], found: Sequence[FlowRetryAnswer]) -> None:
    for one in found:
        print_line(f"{one.id} goes on: {quantity(one.jobs)} {'runs' if one.jobs == 1 else 'run'} again")


def _print_cancelled(_: CommandCall, names: Sequence[str], found: Sequence[FlowCancelAnswer]) -> None:
    for one in found:
        print_line(f"{one.id} {'cancelled' if one.cancelled else f'left as it is: {one.detail}'}")


def _print_approvals(call: CommandCall, found: ApprovalList) -> None:
    if not found.approvals:
        print_line("Nothing waits for an approval.")
        return
    now = call.client.clock.now()
    rows = [
        (
            one.key,
            one.question,
            one.task,
            one.id,
            format_ago(round(one.since * SECOND), now),
            "-" if one.until is None else format_ago(round(one.until * SECOND), now),
        )
        for one in found.approvals
    ]
    print_table(("key", "question", "task", "job", "asked", "over"), rows)
    if found.next:
        print_line(f"The first {len(rows):,}; --cursor {found.next} lists those that follow.")


def _print_decisions(_: CommandCall, names: Sequence[str], found: Sequence[DecisionAnswer]) -> None:
    for one in found:
        print_line(f"{one.question!r} {'approved' if one.ok else 'refused'}: {_go_on(one.woken)}")


def _print_signal(_: CommandCall, one: SignalAnswer) -> None:
    kept = "Nothing waits for it now; it is kept for jobs that will."
    print_line(_go_on(one.woken) if one.woken else kept)


def _go_on(woken: int) -> str:
    return f"{quantity(woken)} {'goes' if woken == 1 else 'go'} on"


def _is_done(answer: object) -> bool:
    return not isinstance(answer, FlowCancelAnswer) or answer.cancelled


SUBJECT = Subject(
    (*METHODS, *SIGNAL_METHODS),
    {
        "list": _print_list,
        "show": _print_trees,
        "retry": _print_retried,
        "cancel": _print_cancelled,
        "approvals": _print_approvals,
        "approve": _print_decisions,
        "signal": _print_signal,
    },
    "list, show, retry or cancel flows; send signals; decide approvals",
    """show prints a flow as a tree: each job below those that it waits for, alike jobs on one line; without ids the
    newest flow that matches. retry lets a flow that is dead or cancelled go on from its failed jobs; cancel ends one:
    nothing of it starts any more. Without ids they are for all that match: retry for those that are dead, cancel for
    those that run, unless --state says otherwise; this asks first. approvals lists what waits for a person, approve
    decides it by its key. signal tells the jobs that wait for it.""",
    names="ID",
    words={"approve": _read_decision, "signal": _read_signal},
    worded=("ok", "value"),
    extra={"yes": ("retry", "cancel"), "no": ("approve",), "value": ("signal",)},
    is_done=_is_done,
)
