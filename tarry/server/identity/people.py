"""The people whom a proxy signs in: which role each has.

default_role = "viewer"            # of people who are not listed; without it they are refused

[roles.viewer]
scopes = ["read"]

[roles.mail]
scopes = ["read", "operate"]
queues = ["mail", "shop-*"]        # all queues without it

[people]
alice = "viewer"
"bob@example.com" = "mail"
"""

import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from tarry.config.kinds import TEXT
from tarry.config.parser import Kind, SettingsSource, read_file, section
from tarry.errors import ConfigError
from tarry.server.identity.entries import PROXY_ENTRY, EntryCaller, EntrySettings

MOST_NAME = 100
"""Characters of the name of a person."""


class RoleSettings(EntrySettings, frozen=True):
    """[roles.NAME]."""


class PeopleFileSettings(Struct, frozen=True):
    """The whole file."""

    default_role: Annotated[str, TEXT] = ""
    roles: dict[str, RoleSettings] = {}
    people: Annotated[
        Mapping[str, str], Kind('names, each with a role, such as { alice = "viewer" }', dict[str, str])
    ] = {}


def person_name(written: str) -> str | None:
    """A name as the file and a header have it; None: it is none. Joined headers have a comma."""
    name = unicodedata.normalize("NFC", written)
    is_name = 0 < len(name) <= MOST_NAME and name.isprintable() and name == name.strip() and "," not in name
    return name if is_name else None


def read_people(path: Path) -> dict[str, RoleSettings]:
    """The role of each person, by the entry of its caller, and the default role as that of nobody; ConfigError if the
    file is missing or something in it is wrong."""
    source = read_file(path, str(path))
    if source is None:
        raise ConfigError(
            f'{path} does not exist: it has [roles.viewer] with scopes, and [people] with alice = "viewer"'
        )
    found = section(PeopleFileSettings, source.table(), (), source)
    entries: dict[str, RoleSettings] = {}
    if found.default_role:
        entries[PROXY_ENTRY] = _role(found, source, ("default_role",), found.default_role)
    for written, role in found.people.items():
        keys, name = ("people", written), person_name(written)
        if name is None:
            raise source.wrong(keys, f"a name of 1 to {MOST_NAME} printable characters without a comma", written)
        if PROXY_ENTRY + name in entries:
            raise source.wrong(keys, "each name once: this one is there in another form of Unicode", written)
        entries[PROXY_ENTRY + name] = _role(found, source, keys, role)
    return entries


def _role(found: PeopleFileSettings, source: SettingsSource, keys: tuple[str, ...], name: str) -> RoleSettings:
    if name not in found.roles:
        raise source.wrong(keys, f"a role: {', '.join(found.roles) or 'there is none, add [roles.viewer]'}", name)
    return found.roles[name]


class PersonCaller(EntryCaller[RoleSettings]):
    """Somebody whom a proxy has signed in. Its name begins with `proxy:`, in the log of acts, too."""

    kind = "person"
    file = "the people's file"
