"""Accounts that may not run a command: the error names it, or the store works without it and `tarry check` says so."""

import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tarry.errors import ConfigError, StoreError, StoreUnavailable
from tarry.model.job import Job
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.jobs import LEASE, NOW, ids, made, put, settle
from tarry.store.opening import open_store
from tarry.store.redis.link.line_wakeup import LineWakeup
from tarry.store.redis.rights import NEEDED, OPTIONAL
from tarry.store.redis.store import RedisStore
from tarry.store.rules.base import BANDS, NextClaim, Want
from tarry.store.rules.sleeper import RESULT, WORK
from tests.lua_scripts import SCRIPTS
from tests.servers.redis import RedisServer

PLACES = ("~{tarry*}*", "&{tarry*}*")
ROOT = Path(__file__).parents[2]
CLAIM = NextClaim([Want("default", band, 5) for band in BANDS], 5, "ann", LEASE)
SOON = 15.0
_OPTIONS = {"COUNT", "EX", "GT", "KEY", "LIMIT", "NX", "WITHSCORES", "WITHVALUES"}
_OF_SIGNING_IN = {"HELLO", "AUTH", "SETNAME", "SELECT"}
_OF_OTHER_SERVERS = {"CLUSTER", "SENTINEL"}


def refuse(admin: RedisStore, command: str) -> None:
    """The account `ann` may do all but this."""
    allow(admin, "+@all", f"-{command.lower().replace(' ', '|')}")


def allow(admin: RedisStore, *rights: str) -> None:
    """The account `ann` may do this, on the keys and channels of stores."""
    admin._link.command("ACL", "SETUSER", "ann", "reset", "on", ">secret", *PLACES, *rights)


@contextmanager
def opened(server: RedisServer) -> Iterator[RedisStore]:
    """A store that is opened by the account."""
    with closing(open_store(server.url.replace("//", "//ann:secret@"))) as store:
        assert isinstance(store, RedisStore)
        yield store


@pytest.fixture
def admin(redis_store: RedisStore) -> Iterator[RedisStore]:
    """On an empty server."""
    yield redis_store
    redis_store._link.command("ACL", "DELUSER", "ann")


def says(store: RedisStore) -> tuple[str, str]:
    return next((fact.value, fact.advice) for fact in store.diagnostics() if fact.name == "rights")


def test_without_a_needed_one_it_is_not_opened(admin: RedisStore, redis_server: RedisServer) -> None:
    """Not later, amid a script, which would be broken off half done."""
    admin._link.command("FLUSHALL")
    for command in NEEDED:
        refuse(admin, command)
        why = rf"may not run {command}, which tarry needs: ACL SETUSER name \+{command.lower()} allows"
        with pytest.raises(ConfigError, match=why), opened(redis_server):
            pass
    assert admin._link.command("DBSIZE") == 0


@pytest.mark.parametrize("command", OPTIONAL)
def test_without_another_one_it_works(admin: RedisStore, redis_server: RedisServer, command: str) -> None:
    if not knows(admin, command):
        pytest.skip(f"this server has no {command}")
    admin._link.command("FUNCTION", "FLUSH")
    refuse(admin, command)
    with opened(redis_server) as store:
        works(store)
        value, advice = says(store)
        assert value == f"without {command}: {OPTIONAL[command]}"
        assert f"+{command.lower().replace(' ', '|')}" in advice


def knows(admin: RedisStore, command: str) -> bool:
    """Whether the server has the command."""
    return bool(admin._link.command("COMMAND", "INFO", command.split(maxsplit=1)[0]) != [None])


def works(store: RedisStore) -> None:
    """A job comes to a worker that sleeps, which ends it; whoever waits for the end is woken, or looks."""
    worker, waiting = store.worker_wakeup(), store.wakeup()
    assert isinstance(worker, LineWakeup)
    with closing(worker), closing(waiting):
        worker.listen(WORK)
        waiting.listen(RESULT)
        (job,) = inserted_while_it_sleeps(store, worker)
        settle(store, job, Returned())
        waiting.sleep(0.1)
        assert store.get([job.id]) != [job]
    assert store.kv_cas("a/b", b"1", None)
    assert store.kv_list("a/") == {"a/b": b"1"}


def inserted_while_it_sleeps(store: RedisStore, worker: LineWakeup) -> list[Job]:
    """The jobs that it claims: with its sleep, or once it wakes."""
    jobs = made(store, 1)
    thread = threading.Thread(target=store.insert, args=[jobs])
    thread.start()
    answer = store.sleep_and_claim(worker, SOON, (), CLAIM)
    thread.join()
    # Who may not wait claims at once, maybe before the job is there.
    claimed = (answer.jobs if answer else []) or store.claim(CLAIM.wants, 5, "ann", LEASE, NOW)
    assert ids(claimed) == ids(jobs)
    return claimed


def test_who_may_not_unblock_hears_of_work_all_the_same(admin: RedisStore, redis_server: RedisServer) -> None:
    """Not by looking once a second."""
    refuse(admin, "CLIENT")
    with opened(redis_server) as store, closing(store.worker_wakeup()) as worker:
        assert isinstance(worker, LineWakeup)
        worker.listen(WORK)
        thread = threading.Thread(target=put, args=[store])
        thread.start()
        while not worker.is_receiving():
            worker.sleep(0.01)
            worker.listen(WORK)
        thread.join()
        put(store)
        assert worker.sleep(SOON)


def test_the_rights_of_the_documentation_are_enough(admin: RedisStore, redis_server: RedisServer) -> None:
    text = (ROOT / "docs" / "stores.md").read_text()
    (rights,) = re.findall(r"ACL SETUSER tarry on >\.\.\. \S+ \S+ (-@all[^`]*)`", text)
    allow(admin, *(right for right in rights.split() if right != "+waitaof" or knows(admin, "WAITAOF")))
    with opened(redis_server) as store:
        works(store)
        assert says(store) == ("all that tarry uses", "")
        with pytest.raises(StoreError, match="flushall"):
            store._link.command("FLUSHALL")


@pytest.mark.parametrize(
    ("command", "why"),
    [("zadd", "may not run a command of a script.*tarry check"), ("hget", "may not do this; ACL SETUSER .*hget")],
)
def test_a_right_that_is_taken_away_later(admin: RedisStore, redis_server: RedisServer, command: str, why: str) -> None:
    """In a script or out of it. It is tried again, since a right may come back."""
    refuse(admin, "client")
    with opened(redis_server) as store:
        put(store)
        admin._link.command("ACL", "SETUSER", "ann", f"-{command}")
        with pytest.raises(StoreUnavailable, match=why):
            store.kv_cas("a", b"1", None) if command == "zadd" else store.kv_get("a")
        admin._link.command("ACL", "SETUSER", "ann", f"+{command}")
        put(store)


def test_every_command_is_in_one_of_both_lists() -> None:
    scripts = "".join(path.read_text() for path in SCRIPTS.glob("*.lua"))
    sources = [path for name in ("redis", "flows", "history", "waiting") for path in _sources(name)]
    words = {word for word in re.findall(r"'([A-Z]{2,})'", scripts) if word not in _OPTIONS}
    for path in sources:
        words |= set(re.findall(r"(?:command|_command)\(\"([A-Z]+)\"", path.read_text()))
        words |= set(re.findall(r"\(\"([A-Z]+)\"[,)]", path.read_text()))
        words |= set(re.findall(r"redis\.call\('([A-Z]+)'", path.read_text()))
    listed = {word.split()[0] for word in (*NEEDED, *OPTIONAL)}
    assert words - _OF_OTHER_SERVERS - _OF_SIGNING_IN - {"ERR", "NOPERM"} <= listed
    assert listed - words <= {"UNSUBSCRIBE", "SUBSCRIBE", "EVALSHA"}


def _sources(room: str) -> list[Path]:
    folder = ROOT / "tarry" / "store" / room
    return [
        path for path in folder.rglob("*.py") if (room == "redis" or path.name == "redis.py") and path.stem != "rights"
    ]
