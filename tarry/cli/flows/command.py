"""`tarry flows`: look at flows, retry and cancel them; send signals, and decide what waits for a decision."""

import argparse
from collections.abc import Callable, Iterator
from functools import partial

from msgspec.structs import replace

from tarry.cli.flows.tree import flow_lines
from tarry.cli.flows.waiting import approve, list_approvals, send_signal
from tarry.cli.printing import confirm, format_ago, partial_answer, print_json, print_result, print_table, progress_bar
from tarry.client.client import Client
from tarry.client.flows.records import flow_detail, flow_record
from tarry.client.flows.searching import FLOW_STATES, FlowSearch, fetch_flow, search_flows, state_of
from tarry.errors import JobNotFound, UsageError
from tarry.model.flow.node_ids import flow_of, is_node, is_root
from tarry.model.flow_row import FlowRow, Phase
from tarry.model.job import State
from tarry.model.lifecycle import NotPossible
from tarry.model.quantity import quantity
from tarry.process.loading import CommandContext
from tarry.store.rules import flow_operating, ids
from tarry.store.rules.flow_graph import ALL_LOOKED_AT
from tarry.terminal import say

LISTED = 50
ACTIONS = ("list", "show", "retry", "cancel", "approvals", "approve", "signal")
NARROWING = "--name --key --state"
_AT_ONCE = 500


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "flows",
        help="list, show, retry or cancel flows; send signals; decide approvals",
        usage="""tarry flows [list] [--name --key --state --limit]
       tarry flows show ID... | --name --key --state [--limit]
       tarry flows retry|cancel ID... | --name --key --state [--yes]
       tarry flows approvals [--question]
       tarry flows approve KEY [--no] [--note] [--question]
       tarry flows signal NAME KEY [--value JSON] [--id ID]""",
        description="""show prints a flow as a tree: each job below those that it waits for, alike jobs on one line;
        without ids the newest flow that matches. retry lets a flow that is dead or cancelled go on from its failed
        jobs; cancel ends one: nothing of it starts any more. Without ids they are for all that match: retry for those
        that are dead, cancel for those that run, unless --state says otherwise; this asks first. approvals lists what
        waits for a person, approve decides it by its key. signal tells the jobs that wait for it.""",
    )
    command.add_argument("action", nargs="?", choices=ACTIONS, default="list")
    command.add_argument("ids", nargs="*", metavar="ID", help="of flows; KEY of approve; NAME KEY of signal")
    command.add_argument("--name", help="the name of the flow")
    command.add_argument("--key", help="the key that it was stored with")
    command.add_argument("--state", choices=[state.value for state in FLOW_STATES])
    command.add_argument("--limit", type=int, help=f"list, show: at most so many ({LISTED}; show: 1)")
    command.add_argument("--reason", help="cancel: why")
    command.add_argument("--yes", action="store_true", help="do not ask")
    command.add_argument("--no", action="store_true", help="approve: refuse it")
    command.add_argument("--note", help="approve: what the job is told besides")
    command.add_argument("--question", help="approve, approvals: only this question")
    command.add_argument("--value", metavar="JSON", help="signal: what the job gets")
    command.add_argument("--id", help="signal: the same one sent twice is one signal")
    command.set_defaults(run=run)


_OPTIONS = {
    "name": ("list", "show", "retry", "cancel"),
    "key": ("list", "show", "retry", "cancel"),
    "state": ("list", "show", "retry", "cancel"),
    "limit": ("list", "show"),
    "reason": ("cancel",),
    "yes": ("retry", "cancel"),
    "no": ("approve",),
    "note": ("approve",),
    "question": ("approve", "approvals"),
    "value": ("signal",),
    "id": ("signal",),
}
"""Which options are for which actions."""


def run(args: argparse.Namespace) -> int:
    """Status 1 where nothing could be done."""
    _check(args)
    setup = CommandContext.of(args)
    match args.action:
        case "list":
            return _list(setup.client, args)
        case "show":
            return _show(setup.client, args)
        case "approvals":
            return list_approvals(setup.client, args)
        case "approve":
            return approve(setup.client, args)
        case "signal":
            return send_signal(setup.client, args)
    return _change_named(setup.client, args) if args.ids else _change_matching(setup.client, args)


def _check(args: argparse.Namespace) -> None:
    """Refuses options that the action would ignore."""
    for name, actions in _OPTIONS.items():
        given = getattr(args, name)
        if given is not None and given is not False and args.action not in actions:
            raise UsageError(f"--{name} is for `tarry flows {'` and `'.join(actions)}`, not for {args.action}")
    if args.action in ("list", "approvals") and args.ids:
        raise UsageError(f"{args.action} takes no ids; `tarry flows show ID` shows one flow")
    if args.action in ("show", "retry", "cancel"):
        _check_choice(args)
    if args.limit is not None and args.limit < 1:
        raise UsageError(f"--limit {args.limit}: 1 or more")


def _check_choice(args: argparse.Namespace) -> None:
    narrowed = args.name or args.key or args.state
    if args.ids and narrowed:
        raise UsageError(f"give ids, or {NARROWING}, not both")
    if args.action == "show" and not args.ids and not narrowed:
        raise UsageError(f"which flow? tarry flows show ID, or {NARROWING}; `tarry flows` lists them")
    if not args.ids and not narrowed:
        raise UsageError(f"{args.action} which flows? Give ids, or narrow with {NARROWING}")


def _list(client: Client, args: argparse.Namespace) -> int:
    most = args.limit or LISTED
    rows = _newest(client, args, most)
    records = [flow_record(row) for row in rows]
    if args.json:
        print_json(records)
        return 0
    if not rows:
        say("No flow matches." if args.name or args.key or args.state else "There are no flows.")
        return 0
    now = client.clock.now()
    cells = [
        (one.id, one.name, one.key or "-", _state(row), f"{one.ended:,}/{one.size:,}", format_ago(_made(row), now))
        for one, row in zip(records, rows, strict=True)
    ]
    print_table(("id", "name", "key", "state", "ended", "made"), cells)
    if len(rows) == most:
        say(f"The newest {len(rows)}; --limit shows more.")
    return 0


def _made(row: FlowRow) -> int:
    """When it was made; microseconds since the epoch."""
    return 0 if row.root is None else row.root.created


def _state(row: FlowRow) -> str:
    return state_of(row).value if row.phase is Phase.ENDED else row.phase.name.lower()


def _newest(client: Client, args: argparse.Namespace, most: int) -> list[FlowRow]:
    """Those that match, the newest first."""
    rows: list[FlowRow] = []
    for page in _pages(client, _search(args, args.state)):
        rows += page
        if len(rows) >= most:
            break
    return rows[:most]


def _search(args: argparse.Namespace, state: str | None) -> FlowSearch:
    wanted = None if state is None else State(state)
    return FlowSearch(wanted, args.name, args.key, min(_AT_ONCE, args.limit or LISTED))


def _pages(client: Client, search: FlowSearch) -> Iterator[list[FlowRow]]:
    """All flows that match, the newest first. Bounded: each page begins below the one before."""
    before: bytes | None = b""
    while before is not None:
        found = partial_answer(partial(search_flows, client.store, replace(search, before=before)))
        yield found.rows
        before = found.next


def _fetch(client: Client, names: list[str]) -> list[FlowRow]:
    """The flows with these ids: all of them must exist."""
    return [_fetch_one(client, name) for name in names]


def _fetch_one(client: Client, name: str) -> FlowRow:
    id = ids.parse(name)
    if is_node(id) and not is_root(id):
        raise JobNotFound(f"{name} is a job of a flow: tarry flows show {ids.text(flow_of(id))}")
    row = fetch_flow(client.store, id)
    if row is None:
        raise JobNotFound(f"no flow {name}: it never existed, or its time of keeping is over")
    return row


def _show(client: Client, args: argparse.Namespace) -> int:
    rows = _fetch(client, args.ids) if args.ids else _newest(client, args, args.limit or 1)
    if not rows:
        raise JobNotFound("no flow matches; `tarry flows` lists them")
    details = [flow_detail(client, row, most=ALL_LOOKED_AT) for row in rows]
    if args.json:
        print_json(details)
        return 0
    now = client.clock.now()
    for detail in details:
        for line in flow_lines(detail, now):
            say(line)
    return 0


def _acts(client: Client, args: argparse.Namespace) -> Callable[[FlowRow], str]:
    """What the action does to one flow; returns what was done, in words. NotPossible."""

    def retry(row: FlowRow) -> str:
        count = flow_operating.retry_flow(client.store, row.id, client.clock.now())
        return f"goes on: {quantity(count)} {'runs' if count == 1 else 'run'} again"

    def cancel(row: FlowRow) -> str:
        flow_operating.cancel_flow(client.store, row.id, client.clock.now(), args.reason or "")
        return "cancelled"

    return retry if args.action == "retry" else cancel


def _change_named(client: Client, args: argparse.Namespace) -> int:
    # All of them must exist before the first one is changed.
    rows, act = _fetch(client, args.ids), _acts(client, args)
    made: dict[str, bool] = {}
    for row in rows:
        name = ids.text(row.id)
        try:
            said, made[name] = act(row), True
        except NotPossible as error:
            said, made[name] = f"left as it is: {error}", False
        if not args.json:
            say(f"{name} {said}")
    if args.json:
        print_json(made)
    return 0 if all(made.values()) else 1


def _change_matching(client: Client, args: argparse.Namespace) -> int:
    state = args.state or (State.DEAD if args.action == "retry" else State.RUNNING)
    # Found first, since the question names the number, and a flow that changed would be on no later page.
    rows = [row.id for page in _pages(client, _search(args, state)) for row in page]
    if not rows:
        print_result(args.json, {"matched": 0, "changed": 0}, "No flow matches.")
        return 0
    match, them = ("matches", "it") if len(rows) == 1 else ("match", "them")
    if not confirm(f"{quantity(len(rows), 'flow')} {match}; {args.action} {them}?", args.yes):
        return 1
    act, changed = _acts(client, args), 0
    for id in progress_bar(rows, len(rows), "flow"):
        row = fetch_flow(client.store, id)
        try:
            changed += row is not None and bool(act(row))
        except NotPossible:
            continue
    done = "retried" if args.action == "retry" else "cancelled"
    print_result(
        args.json, {"matched": len(rows), "changed": changed}, f"{changed:,} of {quantity(len(rows), 'flow')} {done}"
    )
    return 0
