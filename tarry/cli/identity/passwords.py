"""`tarry passwords`: lists, adds, changes and removes the passwords with which people sign in at the console."""

import getpass
import re
import sys
from functools import partial

from msgspec import Struct

from tarry.cli.identity.entry_file import EntryFileEditor, EntryName, EntryPath, EntryRecord, NewRights, print_entries
from tarry.cli.operate.method_command import CommandCall, Subject, add_methods, command_method, print_done
from tarry.config.parser import as_toml
from tarry.errors import TarryError, UsageError
from tarry.operate.access import Scope
from tarry.server.identity.passwords import LEAST, MOST, hash_password, read_passwords


class NewPassword(NewRights, frozen=True):
    """What a new password allows."""

    stdin: bool = False
    """Read the password from the first line of stdin."""


class PasswordChange(Struct, frozen=True):
    """Another password."""

    stdin: bool = False
    """Read the password from the first line of stdin."""


class PasswordList(Struct, frozen=True):
    """All passwords of the file: whose they are, and what they allow."""

    passwords: list[EntryRecord]


def _file(call: CommandCall) -> EntryFileEditor:
    return EntryFileEditor(call, "password", read_passwords)


def _check_known(call: CommandCall, path: EntryPath, body: object = None) -> None:
    _file(call).check_known(path.name)


@command_method("passwords list", Scope.READ)
def list_passwords(call: CommandCall) -> PasswordList:
    """Lists who may sign in, with their rights."""
    return PasswordList(_file(call).records())


@command_method("passwords add")
def add_password(call: CommandCall, path: EntryPath, body: NewPassword) -> EntryName:
    """Adds a password."""
    file = _file(call)
    file.check_new(path.name, body)
    return file.append(path.name, [_hash_line(body.stdin)], body)


@command_method("passwords change", check=_check_known)
def change_password(call: CommandCall, path: EntryPath, body: PasswordChange) -> EntryName:
    """Gives an entry another password; its rights stay."""
    file = _file(call)
    file.check_known(path.name)
    line = _hash_line(body.stdin)
    return file.change(path.name, lambda section: re.sub(r"(?m)^scrypt\s*=.*$", lambda _: line, section))


@command_method("passwords remove", check=_check_known)
def remove_password(call: CommandCall, path: EntryPath) -> EntryName:
    """Removes a password."""
    return _file(call).change(path.name, lambda section: "")


def _hash_line(from_stdin: bool) -> str:
    return f"scrypt = {as_toml(str(hash_password(_password(from_stdin))))}"


def _password(from_stdin: bool) -> str:
    """The new password; UsageError if none can be asked for, TarryError if it will not do."""
    if from_stdin:
        found = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        found = getpass.getpass("Password: ")
        if getpass.getpass("Once more: ") != found:
            raise TarryError("the two passwords differ: nothing is changed")
    else:
        raise UsageError("there is no terminal to ask for the password: use --stdin")
    try:
        size = len(found.encode())
    except UnicodeEncodeError:
        raise TarryError("the password is no UTF-8: nothing is changed") from None
    if len(found) < LEAST or size > MOST:
        raise TarryError(f"a password has {LEAST} characters at least, and {MOST:,} bytes at most")
    return found


SUBJECT = Subject(
    (list_passwords, add_password, change_password, remove_password),
    {
        "list": lambda _, found: print_entries(found.passwords),
        "add": print_done("added"),
        "change": print_done("changed"),
        "remove": print_done("removed"),
    },
    "list, add, change or remove passwords of people who use the console",
    """The passwords of the file that [server] passwords names. add and change ask for the password; the file keeps only
    a salted hash. Servers notice a change within a second, and end the sessions that were opened with a password that
    was changed or removed.""",
    warns=False,
)
add = partial(add_methods, "passwords", SUBJECT)
