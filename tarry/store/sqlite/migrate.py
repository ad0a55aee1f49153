"""For `tarry migrate`: shows and makes the steps for the tables in a file."""

from contextlib import closing

from tarry.store.shared.schema_steps import describe
from tarry.store.sqlite import schema
from tarry.store.sqlite.file import PRODUCERS, TakeTurn, open_database, refuse_lost, transaction, translate_errors
from tarry.store.sqlite.link.database import connect
from tarry.store.sqlite.url import parse_url


def pending(url: str) -> list[str]:
    """The steps that are left to do, one line each; raises what opening the store raises."""
    place = parse_url(url)
    refuse_lost(place.path)
    # To look must not make the file.
    if not place.path.exists():
        return [describe(step) for step in schema.STEPS]
    with translate_errors(place.path), closing(connect(place.path, place.shared)) as database:
        database.set_busy_handler(TakeTurn(*PRODUCERS))
        with transaction(database, "BEGIN"):
            return schema.SqliteSchema(database, place.path, bool(place.shared)).pending_steps()


def migrate(url: str) -> list[str]:
    """Makes the steps that are left; answers them. StoreError if one would stop a program that has the file open."""
    place, steps = parse_url(url), pending(url)
    open_database(place.path, durable=True, shared=place.shared).close()
    return steps
