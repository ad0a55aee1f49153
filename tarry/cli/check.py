"""`tarry check`: before the first start, and when something is wrong."""

import argparse
import contextlib
import os
import pwd
import time
from collections.abc import Iterable, Sequence
from uuid import UUID

from msgspec.structs import replace

from tarry.alert.stores import shards_of
from tarry.cli.operate.queues import unknown_tasks
from tarry.cli.pools import pid_file_facts, queue_facts, slot_facts
from tarry.cli.shared.printing import partial_answer, print_json, print_table
from tarry.config.config import Pool
from tarry.config.server_settings import ServerConfig
from tarry.errors import StoreError, TarryError
from tarry.keeper.cron import schedules_of
from tarry.model.duration import SECOND, format_duration
from tarry.model.job import State
from tarry.model.quantity import format_size, jobs_wait, quantity
from tarry.model.slept import FREE_CALLS, idle_calls
from tarry.model.values.listen_address import ListenAddress
from tarry.process.loading import CommandContext
from tarry.process.metrics import check_metrics
from tarry.process.server_process import check_server
from tarry.store.opening import sqlite_files
from tarry.store.queries.hosts import list_hosts
from tarry.store.rules.base import Diagnostic, Query, Store
from tarry.store.shards.identity import ACCEPT, StoreMemory
from tarry.store.shards.sharded import ShardedStore
from tarry.store.shared import creation
from tarry.store.shared.diagnostics import distance
from tarry.terminal import print_line

_LOOKED_AT = 1000
"""How many jobs that wait are looked at for some that come no further."""
_NAMED = 5
UNSUMMED = 20_000
"""With more records of the history than this to be summed up, there is no keeper, or it is seconds behind."""
_FIRST_USER, _LAST_USER = 1000, 60_000
"""Numbers of people's accounts, as Debian and Red Hat give them; those below are of the system's services."""
_NO_LOGIN = ("nologin", "false", "sync")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    check = commands.add_parser("check", help="look at configuration, app and store, and say what to change")
    check.set_defaults(run=run_check)


def run_check(args: argparse.Namespace) -> int:
    """Status 1 if something has to be changed."""
    facts = check_facts(CommandContext.of(args))
    troubles = [fact for fact in facts if fact.advice]
    if args.json:
        print_json({"facts": facts, "ok": not troubles})
    else:
        print_table(("what", "is", "to change"), [(fact.name, fact.value, fact.advice) for fact in facts])
        print_line("All is well." if not troubles else f"{len(troubles)} to change.")
    return 1 if troubles else 0


def check_facts(setup: CommandContext) -> list[Diagnostic]:
    """The facts of each part, or why a part cannot be checked; an error that affects many parts is given once."""
    facts: list[Diagnostic] = []
    checks = {
        "configuration": _configuration,
        "app": _app,
        "schedules": _schedules,
        "store": _store,
        "integrity": _integrity,
        "history": _history,
        "queues": _queues,
        "server": _server,
        "metrics": _metrics,
        "outbox": _outbox,
        "encryption": _encryption,
        "payloads": _payloads,
        "alerts": _alerts,
    }
    for name, check in checks.items():
        try:
            facts += check(setup)
        except (TarryError, ValueError, OSError) as error:
            # One cause, such as wrong settings, stops many checks.
            if str(error) not in [fact.advice for fact in facts]:
                facts.append(Diagnostic(name, "of no use as it is", str(error)))
    return facts


def _history(setup: CommandContext) -> list[Diagnostic]:
    waiting = len(setup.client.store.history.unsummed(UNSUMMED + 1))
    if waiting <= UNSUMMED:
        return [Diagnostic("history", f"{waiting:,} records to be summed up", number=waiting)]
    advice = "no keeper sums up what was counted, and it takes ever more room: run `tarry start` on a host"
    return [Diagnostic("history", f"over {UNSUMMED:,} records to be summed up", advice, waiting)]


def _configuration(setup: CommandContext) -> list[Diagnostic]:
    file = setup.config.file
    pools = ", ".join(f"{pool.name} ({_count(pool)})" for pool in setup.config.pools.values())
    shown = str(file) if file else "defaults (no tarry.toml here or above)"
    return [
        Diagnostic("configuration", shown),
        Diagnostic("pools", pools),
        *pid_file_facts(setup.config.master.pid_file),
    ]


def _count(pool: Pool) -> str:
    return f"{pool.bounds.min} to {pool.bounds.max}" if pool.follows else str(pool.workers)


def _app(setup: CommandContext) -> list[Diagnostic]:
    if not setup.app_name and not setup.config.tasks:
        return [Diagnostic("app", "none named", "give -a module:app, or set app in tarry.toml")]
    book = setup.app.http
    # As the workers load them, so that a mistake shows before the start.
    book.load(thoroughly=True)
    facts = [Diagnostic("app", f"{setup.app_name or 'none named'}: {quantity(len(setup.app.tasks), 'task')}")]
    for name, endpoint in sorted(book.endpoints.items()):
        facts += [Diagnostic(f"task {name}", "cannot be sent as it is", trouble) for trouble in endpoint.problems()]
        facts += [Diagnostic(f"task {name}", warning) for warning in endpoint.warnings()]
    return facts


def _encryption(setup: CommandContext) -> list[Diagnostic]:
    if not (places := setup.config.encryption.keys):
        return []
    from tarry.store.sealing.sealed_store import names_of_keys  # noqa: PLC0415 - few have keys

    first, *others = names_of_keys(places)
    return [Diagnostic("encryption", f"key {first} seals" + "".join(f", {key} opens" for key in others))]


def _payloads(setup: CommandContext) -> list[Diagnostic]:
    payloads = setup.config.payloads
    if not payloads.to:
        return []
    from tarry.store.payloads.payload_store import try_place  # noqa: PLC0415 - few have a place

    try_place(payloads.to)
    # Its process alone knows under which name, so nobody sweeps it after that.
    is_forgotten = setup.client.store.url.startswith("memory://")
    advice = f"with a store in memory nobody deletes what its process leaves at {payloads.to}" if is_forgotten else ""
    value = f"what is over {format_size(payloads.over)} is at {payloads.to}, which works"
    return [Diagnostic("payloads", value, advice)]


def _schedules(setup: CommandContext) -> list[Diagnostic]:
    """Those that never tick again. ConfigError: one names a calendar that is not there."""
    tasks = setup.app.tasks if setup.app_name else {}
    found, now = schedules_of(tasks, setup.config.named_calendars), time.time_ns() // 1000
    over = [name for name, schedule in found.items() if schedule.timetable.next(now) is None]
    advice = "give its calendar further dates, or remove it"
    return [Diagnostic(f"schedule {name}", "has no tick any more", advice) for name in sorted(over)]


def _store(setup: CommandContext) -> list[Diagnostic]:
    store = setup.client.store
    if store.url in creation.missing:
        return [Diagnostic("store", f"{store.url} (not there yet: the first start or enqueue makes it)")]
    facts = [Diagnostic("store", store.url), *store.diagnostics()]
    # Stores on servers report round trip and clock offset themselves.
    memory = StoreMemory.beside(setup.config.master.pid_file)
    for shard in shards_of(store):
        # What is away is told by another line.
        with contextlib.suppress(StoreError):
            if finding := memory.finding(shard):
                facts.append(Diagnostic("data", f"{shard.url}: {finding}", ACCEPT))
    names = {fact.name for fact in facts}
    facts += [fact for fact in _timings(store) if fact.name not in names]
    for task, count in unknown_tasks(setup, partial_answer(store.counts)).items():
        facts.append(
            Diagnostic(
                "unknown task", f"{task}: {jobs_wait(count)}", "deploy a worker that knows it, or delete its jobs"
            )
        )
    return [*facts, *idle_facts(store)]


def idle_facts(store: Store) -> list[Diagnostic]:
    """Jobs that are called again and again and come no further, of the oldest ones that wait."""
    waiting = Query(states=(State.SCHEDULED, State.READY), limit=_LOOKED_AT)
    found = [
        (job, calls) for job in partial_answer(lambda: store.find(waiting)) if (calls := idle_calls(job)) >= FREE_CALLS
    ]
    advice = "look what it waits for: `tarry jobs show` tells; then mend its task, or cancel it"
    return [
        Diagnostic("job comes no further", f"{UUID(bytes=job.id)} of {job.task}: called {calls} times in a row", advice)
        for job, calls in found[:_NAMED]
    ]


def _integrity(setup: CommandContext) -> list[Diagnostic]:
    """Whether SQLite files are whole. Not by way of the store, which may be too damaged to be opened."""
    # The store's own facts say that a file cannot be written, and without that SQLite cannot read its log.
    files = [(path, shared) for path, shared in sqlite_files(setup.config.stores) if os.access(path, os.W_OK)]
    if not files:
        return []
    from tarry.store.sqlite.damage.trees import integrity  # noqa: PLC0415 - with other stores it is not needed

    facts = [integrity(path, shared) for path, shared in files]
    names = [f"sqlite:///{path} integrity" if len(files) > 1 else "integrity" for path, _ in files]
    return [replace(fact, name=name) for fact, name in zip(facts, names, strict=True)]


def _queues(setup: CommandContext) -> list[Diagnostic]:
    """Compares the queues that pools serve with those that tasks and waiting jobs need."""
    if not setup.app_name and not setup.config.tasks:
        return []
    tasks, client = setup.known_tasks().values(), setup.client
    others = any(host.is_alive and not host.is_local for host in list_hosts(client.store, client.clock.now()))
    counts = partial_answer(client.store.counts)
    return [*slot_facts(setup.config, tasks), *queue_facts(setup.config, tasks, counts, others)]


def _server(setup: CommandContext) -> list[Diagnostic]:
    """Where the doors listen, and whether they could be served."""
    server = setup.config.server
    if not server.is_on:
        return []
    check_server(setup.home, server)
    others = other_users()
    return [
        Diagnostic(door, ", ".join(map(str, addresses)), _door_advice(server, door, addresses, others))
        for door, addresses in server.addresses.items()
    ]


def _door_advice(server: ServerConfig, door: str, addresses: Sequence[ListenAddress], others: Sequence[str]) -> str:
    if door == "http" and server.knows_callers:
        return ""
    ways = {"http": "set server.tokens, or server.http to unix:PATH"}
    return open_door_advice(addresses, ways.get(door, f"set server.{door} to unix:PATH"), others)


def _metrics(setup: CommandContext) -> list[Diagnostic]:
    """Where the figures for Prometheus are, and whether they could be shown there."""
    metrics = setup.config.metrics
    if not metrics.is_on:
        return []
    check_metrics(setup.config)
    facts = []
    if metrics.listen:
        advice = open_door_advice(metrics.listen, "set metrics.listen to unix:PATH, or metrics.textfile", other_users())
        facts.append(Diagnostic("metrics", ", ".join(map(str, metrics.listen)), advice))
    if (path := metrics.textfile) is not None:
        advice = "" if os.access(path.parent, os.W_OK) else f"cannot be written: let tarry write in {path.parent}"
        facts.append(Diagnostic("metrics", f"{path}, every {format_duration(round(metrics.every * SECOND))}", advice))
    return facts


def _timings(store: Store) -> list[Diagnostic]:
    """Round trip and clock offset of each available shard."""
    if not isinstance(store, ShardedStore) or len(store.shards) == 1:
        return distance(store.time)
    there = [shard for shard in store.shards if not shard.away]
    return [replace(fact, name=f"{shard.url} {fact.name}") for shard in there for fact in distance(shard.store.time)]


def _outbox(setup: CommandContext) -> list[Diagnostic]:
    """The jobs that wait on this host until the store is back."""
    outbox = setup.app.outbox if setup.app_name else None
    if outbox is None:
        return []
    content = outbox.content()
    outbox.close()
    content_text = f"{outbox.path}: {quantity(content.jobs)}, {quantity(content.bytes, 'byte')}"
    if not content.jobs:
        return [Diagnostic("outbox", content_text)]
    age = format_duration(max(0, time.time_ns() // 1000 - content.oldest))
    return [
        Diagnostic(
            "outbox",
            f"{content_text}, the oldest for {age}",
            "it empties once the store is back and a process of the app runs here",
        )
    ]


def _alerts(setup: CommandContext) -> list[Diagnostic]:
    """Whether the recipients of alerts can be reached; sends nothing."""
    from tarry.process.alerting import check_recipients  # noqa: PLC0415 - few commands need it

    # HTTP tasks may name recipients of their own.
    setup.known_tasks()
    return list(check_recipients(setup.home))


def other_users(accounts: Iterable[pwd.struct_passwd] | None = None) -> list[str]:
    """The names of the people besides the caller who may log in to this host."""
    found = pwd.getpwall() if accounts is None else accounts
    return [
        account.pw_name
        for account in found
        if _FIRST_USER <= account.pw_uid < _LAST_USER and account.pw_uid != os.geteuid() and _may_log_in(account)
    ]


def _may_log_in(account: pwd.struct_passwd) -> bool:
    return os.path.basename(account.pw_shell) not in _NO_LOGIN


def open_door_advice(addresses: Sequence[ListenAddress], way_out: str, others: Sequence[str]) -> str:
    """What to change about a door that asks for no token; empty: nobody else on this host can use it. way_out: how to
    shut it."""
    reached = [str(address) for address in addresses if not address.path]
    if not reached or not others:
        return ""
    named = ", ".join([*others[:3], *(["..."] if len(others) > 3 else [])])
    return f"every user of this host ({named}) can use {reached[0]}: {way_out}"
