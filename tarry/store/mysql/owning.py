"""The owners of running jobs and of named leases."""

from collections.abc import Sequence

from tarry.model.job import Job
from tarry.store.mysql import sql
from tarry.store.mysql.link.connection import COMMIT, MysqlConnection
from tarry.store.mysql.sql import bind, id_list, raw, text


def find_owned(link: MysqlConnection, owner: str, ids: Sequence[bytes]) -> list[tuple[bytes, int]]:
    """The ids and epochs of these jobs that the owner runs."""
    where = f"id IN ({id_list(ids)}) AND owner = {text(owner)}"
    rows = link.rows(f"SELECT id, epoch FROM tarry_running FORCE INDEX (PRIMARY) WHERE {where}")
    return [(id, epoch) for id, epoch in rows]


def overdue(link: MysqlConnection, now: int, gone: Sequence[str], limit: int) -> list[Job]:
    """Running jobs whose owner's lease ran out, or whose owner is known to be gone."""
    # The common case costs one short look at a small table.
    lapsed = link.rows(f"SELECT 1 FROM tarry_owner WHERE until <= {now} LIMIT 1")
    if not lapsed and not gone:
        return []
    also = f" OR owner IN ({id_list(name.encode() for name in gone)}) ORDER BY" if gone else " ORDER BY"
    statement = sql.STATEMENTS.overdue.replace(" ORDER BY", also, 1)
    return [sql.job(row) for row in link.rows(bind(statement, (now, max(0, limit))))]


def hold(link: MysqlConnection, name: str, owner: str, until: int, now: int) -> bool:
    """As `Store.hold`; also forgets owners whose lease ran out a minute ago and who hold nothing."""
    me, ours = text(owner), f"owner = {text(owner)}"
    # One statement decides: a look before it would lock nothing where there is no row yet. The columns are set from
    # left to right, so `until` follows what became of `owner`.
    take = (
        f"INSERT INTO tarry_hold (name, owner, until) VALUES ({text(name)}, {me}, {until}) ON DUPLICATE KEY UPDATE"
        f" owner = IF({ours} OR until <= {now}, {me}, owner), until = IF({ours}, {until}, until)"
    )
    *_, holder, _ = link.run("BEGIN", take, f"SELECT {ours} FROM tarry_hold WHERE name = {text(name)}", COMMIT)
    _forget_owners(link, now - 60_000_000)
    return bool(holder.rows[0][0])


def _forget_owners(link: MysqlConnection, before: int) -> None:
    """Deletes owners whose lease ran out before that time and who hold nothing."""
    # One by one: a search under lock would wait for every transaction that prolongs a lease. The delete checks the time
    # again, since the owner may be back.
    idle = "AND name NOT IN (SELECT owner FROM tarry_running)"
    for (name,) in link.rows(f"SELECT name FROM tarry_owner WHERE until < {before} {idle} LIMIT 100"):
        link.run("BEGIN", f"DELETE FROM tarry_owner WHERE name = {raw(name)} AND until < {before}", COMMIT)
