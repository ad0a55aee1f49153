"""Enqueueing within a transaction of the program's own: there if, and only if, it commits."""

from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from tarry import App
from tarry.errors import OtherDatabase, QueueFull, StoreError
from tarry.model.bound import Bound
from tarry.model.duration import HOUR
from tarry.model.job import State
from tarry.model.limit import Limit
from tarry.store.conformance.cases.jobs import NOW, ids, made, put, seen, taken
from tarry.store.conformance.cases.sleepers import wakes
from tarry.store.mysql.link.address import parse
from tarry.store.mysql.store import MysqlStore
from tarry.store.rules.sleeper import WORK
from tests.store import django_story


@pytest.fixture
def store(mariadb_url: str) -> Iterator[MysqlStore]:
    store = MysqlStore(mariadb_url)
    yield store
    store.close()


def connected(url: str, **more: Any) -> Any:
    where = parse(url)
    return pymysql.connect(host=where.host, port=where.port, user=where.user, database=where.database, **more)


End = Callable[[], None]


class Theirs:
    """A transaction of some library's: what one gives to `connection=`, and how it ends."""

    def __init__(
        self, given: Any, commit: Callable[[], None], rollback: Callable[[], None], *ends: Callable[[], None]
    ) -> None:
        self.given, self.commit, self.rollback, self.ends = given, commit, rollback, ends


def of_pymysql(url: str) -> Theirs:
    connection = connected(url)
    return Theirs(connection, connection.commit, connection.rollback, connection.close)


def of_a_cursor(url: str) -> Theirs:
    connection = connected(url, cursorclass=pymysql.cursors.DictCursor)
    return Theirs(connection.cursor(), connection.commit, connection.rollback, connection.close)


def of_begin(url: str) -> Theirs:
    connection = connected(url, autocommit=True)
    connection.begin()
    return Theirs(connection, connection.commit, connection.rollback, connection.close)


def of_alchemy(url: str) -> Theirs:
    engine = create_engine(url.replace("mysql://", "mysql+pymysql://"))
    connection = engine.connect()
    return Theirs(connection, connection.commit, connection.rollback, connection.close, engine.dispose)


def of_a_session(url: str) -> Theirs:
    engine = create_engine(url.replace("mysql://", "mariadb+pymysql://"))
    session = Session(engine)
    return Theirs(session, session.commit, session.rollback, session.close, engine.dispose)


WAYS = [of_pymysql, of_a_cursor, of_begin, of_alchemy, of_a_session]


@pytest.fixture(params=WAYS)
def theirs(request: pytest.FixtureRequest, store: MysqlStore, mariadb_url: str) -> Iterator[Theirs]:
    theirs = request.param(mariadb_url)
    yield theirs
    for end in theirs.ends:
        end()


def test_a_full_queue_refuses_all_of_them(store: MysqlStore, mariadb_url: str) -> None:
    theirs, bounds = of_pymysql(mariadb_url), {"default": Bound(2)}
    try:
        with pytest.raises(QueueFull):
            store.insert_within(theirs.given, made(store, 3), bounds, NOW)
        # Their transaction is as good as before, and other producers do not wait for its end.
        store.insert_within(theirs.given, made(store), bounds, NOW)
        assert isinstance(store.insert_bounded(made(store), bounds, NOW)[0], bytes)
        theirs.commit()
    finally:
        for end in theirs.ends:
            end()
    assert sum(tally.count for tally in store.counts()) == 2
    assert isinstance(store.insert_bounded(made(store), bounds, NOW)[0], QueueFull)


def test_there_once_it_is_committed(store: MysqlStore, theirs: Theirs) -> None:
    """Ready and scheduled, with and without a key; not a moment before."""
    jobs = [*made(store, 2), *made(store, due=NOW + HOUR), *made(store, key="k"), *made(store, lane="x")]
    assert store.insert_within(theirs.given, jobs) == ids(jobs)
    assert store.get(ids(jobs)) == [None] * 5
    assert taken(store) == []
    theirs.commit()
    assert store.get(ids(jobs)) == jobs
    assert len(taken(store)) == 4


def test_not_there_if_it_is_rolled_back(store: MysqlStore, theirs: Theirs) -> None:
    jobs = made(store, 3) + made(store, key="k")
    store.insert_within(theirs.given, jobs)
    theirs.rollback()
    assert store.get(ids(jobs)) == [None] * 4
    assert store.insert(jobs) == ids(jobs)


def test_a_key_that_is_held(store: MysqlStore, theirs: Theirs) -> None:
    """The call lives on under the id of who holds it, also within one batch and one transaction."""
    (first,) = put(store, key="k")
    second, third, fourth = made(store, key="k")[0], *made(store, 2, key="other")
    assert store.insert_within(theirs.given, [second, third, fourth]) == [first.id, third.id, third.id]
    assert store.insert_within(theirs.given, [fourth]) == [third.id]
    theirs.commit()
    assert store.get([second.id, third.id, fourth.id]) == [None, third, None]


def test_the_same_job_twice(store: MysqlStore, theirs: Theirs) -> None:
    (job,) = made(store)
    assert store.insert_within(theirs.given, [job, job]) == [job.id, job.id]
    assert store.insert_within(theirs.given, [job]) == [job.id]
    assert store.insert_within(theirs.given, []) == []
    theirs.commit()
    assert len(taken(store)) == 1


def test_a_limit_holds_for_it(store: MysqlStore, theirs: Theirs) -> None:
    store.limit("task:mail", Limit(1))
    jobs = made(store, 3)
    store.insert_within(theirs.given, jobs)
    theirs.commit()
    assert len(taken(store)) == 1
    assert seen(store, jobs[2]).lane == ""


def test_whoever_sleeps_hears_of_it_after_the_commit(store: MysqlStore, theirs: Theirs) -> None:
    """By looking for news: we are not told of it."""
    sleeper = store.wakeup()
    sleeper.listen(WORK)
    store.insert_within(theirs.given, made(store))
    theirs.commit()
    assert wakes(sleeper)
    sleeper.close()


def test_a_connection_that_commits_each_statement(store: MysqlStore, mariadb_url: str) -> None:
    connection = connected(mariadb_url, autocommit=True)
    with pytest.raises(StoreError, match="begin one first"):
        store.insert_within(connection, made(store))
    connection.close()
    assert store.counts() == []


def test_another_database(store: MysqlStore, mariadb_server: Any, redis_server: Any) -> None:
    """Of the same server, or of another kind."""
    other = connected(mariadb_server.url)
    with pytest.raises(OtherDatabase, match="to another database"):
        store.insert_within(other, made(store))
    other.close()
    engine = create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(OtherDatabase, match="sqlite"):
        store.insert_within(connection, made(store))
    with Session(engine) as session, pytest.raises(OtherDatabase, match="sqlite"):
        store.insert_within(session, made(store))
    with Session() as session, pytest.raises(OtherDatabase, match="without a database"):
        store.insert_within(session, made(store))
    engine.dispose()


def test_what_is_no_connection(store: MysqlStore) -> None:
    with pytest.raises(TypeError, match="PyMySQL or mysqlclient"):
        store.insert_within(object(), made(store))


def test_the_errors_of_the_connection_are_its_owners(store: MysqlStore, mariadb_url: str) -> None:
    connection = connected(mariadb_url)
    connection.close()
    with pytest.raises(pymysql.err.Error):
        store.insert_within(connection, made(store))


def test_their_own_rows_and_ours_are_one(store: MysqlStore, mariadb_url: str) -> None:
    """What the program writes, and the job that is about it."""
    engine = create_engine(mariadb_url.replace("mysql://", "mysql+pymysql://"))
    with Session(engine) as session:
        session.execute(text("CREATE TABLE orders (n INT PRIMARY KEY)"))
        for number, keep in ((1, True), (2, False)):
            session.execute(text(f"INSERT INTO orders VALUES ({number})"))
            (job,) = made(store, body=b"%d" % number)
            store.insert_within(session, [job])
            session.commit() if keep else session.rollback()
        assert list(session.execute(text("SELECT n FROM orders")).scalars()) == [1]
    engine.dispose()
    (job,) = taken(store)
    assert (job.body, job.state) == (b"1", State.RUNNING)


DJANGO = """
import pymysql
pymysql.install_as_MySQLdb()
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.mysql", "NAME": sys.argv[1], "USER": "root",
    "HOST": "127.0.0.1", "PORT": sys.argv[2]}})
"""


def test_django(mariadb_url: str) -> None:
    """Its backend, here on PyMySQL: within `atomic` it is one transaction, outside each statement is its own."""
    where = parse(mariadb_url)
    *said, refused = django_story.told(DJANGO, where.database, str(where.port), mariadb_url)
    assert said == ["[]", "ready", "1"]
    assert "no transaction open" in refused


def test_enqueued_within_a_session(mariadb_url: str) -> None:
    """As a program does it, and what came of the call is known after the commit."""
    app = App(mariadb_url, closures=True)

    @app.task(name="tests.within")
    def task(n: int) -> None: ...

    engine = create_engine(mariadb_url.replace("mysql://", "mysql+pymysql://"))
    with Session(engine) as session:
        handle = task.using(connection=session).enqueue(1)
        session.commit()
    assert handle.state == "ready"
    engine.dispose()
    app.close()
