"""`tarry audit`: who did what; and the entries that commands make in the store's log of acts."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tarry.cli.moment import parse_since
from tarry.cli.printing import format_clock, print_json, print_table
from tarry.client.acting import command_actor
from tarry.client.audit.log import Act, ActFilter, ActLog, cut
from tarry.errors import TarryError, UsageError
from tarry.model.duration import SECOND
from tarry.process.loading import CommandContext
from tarry.store.rules import ids
from tarry.terminal import harmless, say

if TYPE_CHECKING:
    from tarry.operate.method import Method
    from tarry.store.rules.base import Store

LISTED = 100
"""Acts that are listed, unless --limit says otherwise."""
_MOST_JOBS = 20
"""Ids of jobs that an act of a command names."""

ACTS: Mapping[str, Mapping[str, str]] = {
    "jobs": {"kill": "kill_job"},
    "flows": {
        "retry": "retry_flow",
        "cancel": "cancel_flow",
        "approve": "decide_approval",
        "signal": "send_signal",
    },
    "tasks": {"add": "add_task", "edit": "edit_task", "remove": "remove_task"},
    "endpoints": {
        "pause": "pause_endpoint",
        "resume": "resume_endpoint",
        "close": "close_endpoint",
        "probe": "probe_endpoint",
        "replay": "replay_endpoint",
    },
    "hosts": {"reload": "reload_host", "scale": "scale_host", "stop": "stop_host", "stack": "dump_worker"},
    "tokens": {"add": "add_token", "remove": "remove_token"},
    "passwords": {"add": "add_password", "change": "change_password", "remove": "remove_password"},
    "shards": {"move": "move_shards"},
    "import": {"celery": "import_celery"},
    "store": {"repair": "repair_store", "accept": "accept_store"},
}
"""What each action of each command is called in the log: as the method of the HTTP API that does the same."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "audit",
        help="who did what: to jobs, queues, limits, schedules, tasks, tokens",
        description="""Lists the last acts of people and programs by the HTTP API, the console and these commands, the
        newest first; also what was refused. The store keeps the last 10,000, for 90 days. What was done to a job is
        also in `tarry jobs show ID`, as long as the job is kept.""",
    )
    command.add_argument("--job", metavar="ID", help="that name this job")
    command.add_argument("--who", metavar="NAME", help="by this token or user")
    command.add_argument("--act", metavar="NAME", help='of this kind: "cancel_job"')
    command.add_argument("--queue", metavar="NAME", help="that concern this queue")
    command.add_argument("--since", help='since that time: "2h" (ago), "2026-11-22T03:00Z"')
    command.add_argument("--limit", type=int, default=LISTED, help=f"list at most so many ({LISTED})")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 0."""
    if args.limit < 1:
        raise UsageError(f"--limit {args.limit}: 1 or more")
    job = ids.text(ids.parse(args.job)) if args.job else ""
    since = round(parse_since(args.since) * SECOND) if args.since else 0
    wanted = ActFilter(job, args.who or "", args.act or "", args.queue or "", since)
    acts = _read(CommandContext.of(args).client.store, wanted, args.limit)
    if args.json:
        print_json(acts)
        return 0
    rows = [(format_clock(one.at), one.who or "-", _origin(one), one.act, one.subject, one.outcome) for one in acts]
    print_table(("at", "who", "from", "act", "subject", "outcome"), rows)
    return 0


def _read(store: "Store", wanted: ActFilter, limit: int) -> list[Act]:
    return ActLog(store).read(wanted, limit, now=time.time_ns() // 1000).acts


def _origin(act: Act) -> str:
    return " ".join(part for part in (act.address, f"({act.via})" if act.via else "") if part)


def method_of(args: argparse.Namespace) -> "Method | None":
    """The method that the command calls; None: it is not made of one."""
    found: Method | None = getattr(args, "methods", {}).get(getattr(args, "action", ""))
    return found


def act_name(args: argparse.Namespace) -> str:
    """What the command is called in the log of acts; empty: it changes nothing that is kept there."""
    if getattr(args, "dry_run", False):
        return ""
    if (method := method_of(args)) is not None:
        return method.name if method.is_audited else ""
    return ACTS.get(args.command, {}).get(getattr(args, "action", "") or "", "")


def record(args: argparse.Namespace, outcome: str) -> None:
    """Writes the command and its outcome to the store's log of acts."""
    actor = command_actor()
    queue = getattr(args, "queue", None)
    act = Act(
        0,
        actor.name,
        act_name(args),
        cut(outcome),
        actor.address,
        actor.via,
        cut(_subject(args)),
        queue if isinstance(queue, str) else _only_queue(args),
        _jobs(args),
    )
    write_acts(CommandContext.of(args), [act])


def write_acts(setup: CommandContext, acts: Sequence[Act]) -> None:
    """Writes acts, which are now, to the store's log of acts. The command stays as it ended if that fails: then a line
    on stderr says so."""
    now = time.time_ns() // 1000
    try:
        if acts:
            ActLog(setup.client.store).append([replace(act, at=now) for act in acts], now)
    except (TarryError, OSError, ValueError) as error:
        say(f"tarry: the log of acts of the store has no entry of this: {harmless(str(error))}", file=sys.stderr)


def _subject(args: argparse.Namespace) -> str:
    """On what, without values of settings: these may be secrets."""
    named = [*getattr(args, "ids", ()), *getattr(args, "names", ()), *getattr(args, "words", ())]
    named.append(getattr(args, "name", None) or "")
    filters = ("queue", "task", "key", "state", "older", "since", "outcome")
    chosen = {name: value for name in filters if (value := getattr(args, name, None))}
    return " ".join([*filter(None, named), *(f"{name}={_shown(value)}" for name, value in chosen.items())])


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _only_queue(args: argparse.Namespace) -> str:
    names: list[str] = getattr(args, "names", [])
    return names[0] if args.command == "queues" and len(names) == 1 else ""


def _jobs(args: argparse.Namespace) -> tuple[str, ...]:
    found = []
    for name in (getattr(args, "ids", ()) or getattr(args, "names", ()))[:_MOST_JOBS]:
        try:
            found.append(ids.text(ids.parse(name)))
        except ValueError:
            continue
    return tuple(found)
