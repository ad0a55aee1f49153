"""What workers with nothing to do take: CPU and memory, and what they read of the store."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from msgspec.structs import replace

from bench import machine
from bench.app import app
from bench.measure import Figure, below, measure
from bench.place import Bench
from tarry.client.audit.log import PREFIX as ACTS
from tarry.client.audit.log import Act, ActLog
from tarry.store.postgres.store import PostgresStore
from tarry.store.queries.hosts import PREFIX as HOSTS
from tarry.store.queries.hosts import entries
from tarry.store.redis.store import RedisStore
from tarry.store.rules.base import Store

_HOSTS = (1, 10, 40)
_ACTS, _CALLERS = 10_000, 10
_ASKED = {"redis": "commands", "postgresql": "transactions"}


@measure("idle", limit=90)
def idle(bench: Bench) -> Iterator[Figure]:
    seconds = bench.scaled(30)
    with bench.place() as place, place.workers(2) as crew:
        time.sleep(1)  # idle is a while after the last job
        others = [pid for pid in crew.everybody if pid not in crew.pids]
        before = {pid: machine.cpu(pid) for pid in crew.everybody}
        begin = time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - begin
        used = {pid: (machine.cpu(pid) - cpu) / passed * 100 for pid, cpu in before.items()}
        most = max(used[pid] for pid in crew.pids)
        yield Figure("idle: CPU of a worker", most, "% of a core", target=below(1))
        yield Figure("idle: CPU of master and keeper", sum(used[pid] for pid in others), "% of a core")
        yield Figure("idle: RSS of a worker", max(machine.memory(pid)[0] for pid in crew.pids) / 1e6, "MB")
        yield Figure("idle: PSS of all processes", sum(machine.memory(pid)[1] for pid in used) / 1e6, "MB")


@measure("idle-hosts", limit=90)
def idle_hosts(bench: Bench) -> Iterator[Figure]:
    """One host with a worker, beside the entries of others, which are as large as its own."""
    seconds = bench.scaled(20)
    with bench.place() as place, _acts(app.client.store) as store, place.workers(1) as crew:
        for count in _HOSTS:
            _add_hosts(store, count)
            time.sleep(1)  # idle is a while after the last job
            before = sum(map(machine.cpu, crew.everybody)), _bytes_sent(store)
            begin = time.monotonic()
            time.sleep(seconds)
            passed = time.monotonic() - begin
            after = sum(map(machine.cpu, crew.everybody)), _bytes_sent(store)
            cpu, sent = ((new - old) / passed for new, old in zip(after, before, strict=True))
            name = f"one of {count} idle hosts, {_ACTS:,} acts in the log"
            yield Figure(f"{name}: CPU of all its processes", cpu * 100, "% of a core")
            if isinstance(store, RedisStore):
                yield Figure(f"{name}: what it reads", sent / 1e3, "kB/s", target=below(10 + 2 * count))


@measure("idle-asks", limit=180)
def idle_asks(bench: Bench) -> Iterator[Figure]:
    """What an idle host asks of its server, with one worker and with eight: commands also those within scripts."""
    seconds = bench.scaled(30)
    for workers in (1, 8) if bench.kind in _ASKED else ():
        with bench.place() as place, place.workers(workers):
            time.sleep(15)  # until it has been idle for long
            before, begin = _asked(app.client.store), time.monotonic()
            time.sleep(seconds)
            # The count of connections is one of ours.
            asked, passed = _asked(app.client.store) - before - 1, time.monotonic() - begin
            yield Figure(f"idle host, {workers} workers: {_ASKED[bench.kind]}", asked / passed, "/s")


def _asked(store: Store) -> float:
    """How many commands or transactions the server has done, for whomever."""
    if isinstance(store, RedisStore):
        stats = store._link.command("INFO", "stats").decode()
        return float(stats.partition("total_commands_processed:")[2].split()[0])
    assert isinstance(store, PostgresStore)
    with store._pool.lend(10.0) as link:
        return float(link.rows("SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database")[0][0])


@contextmanager
def _acts(store: Store) -> Iterator[Store]:
    """A store whose log of acts has so many."""
    now = store.time()
    for caller in range(_CALLERS):
        acts = [Act(now, f"caller{caller}", "cancel_job", "done") for _ in range(_ACTS // _CALLERS)]
        ActLog(store).append(acts, now)
    try:
        yield store
    finally:
        for name, value in {**store.kv_list(ACTS), **store.kv_list(HOSTS)}.items():
            store.kv_cas(name, None, value)


def _add_hosts(store: Store, count: int) -> None:
    """Adds entries until there are so many."""
    found = [host for _, _, host in entries(store)]
    for number in range(len(found), count):
        host = replace(found[0], instance=f"host{number}|elsewhere:1:1:0", name=f"host{number}")
        store.kv_cas(HOSTS + host.instance, msgspec.json.encode(host), None)


def _bytes_sent(store: Store) -> float:
    """How many the server has sent, to whomever; 0.0 where it does not tell."""
    if not isinstance(store, RedisStore):
        return 0.0
    stats = store._link.command("INFO", "stats").decode()
    return float(stats.partition("total_net_output_bytes:")[2].split()[0])
