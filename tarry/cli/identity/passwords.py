"""`tarry passwords`: lists, adds, changes and removes the passwords with which people sign in at the console."""

import argparse
import getpass
import re
import sys
from pathlib import Path

from tarry.cli.identity.entry_file import (
    add_rights,
    append_section,
    check_known,
    check_new,
    find_file,
    print_entries,
    remove_sections,
    section_pattern,
    write,
)
from tarry.cli.printing import print_json
from tarry.config.parser import as_toml
from tarry.door.identity.passwords import LEAST, MOST, hash_password, read_passwords
from tarry.errors import TarryError, UsageError
from tarry.terminal import say


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    passwords = commands.add_parser(
        "passwords",
        help="list, add, change or remove passwords of people who use the console",
        description="""The passwords of the file that [server] passwords names. add and change ask for the password; the
        file keeps only a salted hash. Servers notice a change within a second, and end the sessions that were opened
        with a password that was changed or removed.""",
    )
    passwords.add_argument("action", nargs="?", choices=("list", "add", "change", "remove"), default="list")
    passwords.add_argument("names", nargs="*", metavar="NAME")
    add_rights(passwords, "password")
    passwords.add_argument("--stdin", action="store_true", help="read the password from the first line of stdin")
    passwords.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Status 0 once done."""
    path = find_file(args, "passwords")
    if args.action == "list":
        if args.names:
            raise UsageError("list takes no names; `tarry passwords` shows them all")
        return print_entries(read_passwords(path), args.json)
    if not args.names:
        raise UsageError(f"{args.action} which password? tarry passwords {args.action} NAME")
    if args.action == "remove":
        return remove_sections(path, "password", args.names, read_passwords)
    return _add(path, args) if args.action == "add" else _change(path, args)


def _add(path: Path, args: argparse.Namespace) -> int:
    name = check_new(path, "password", args, read_passwords)
    append_section(path, f"passwords.{name}", [_hash_line(args)], args)
    return _report(args, name, "added")


def _change(path: Path, args: argparse.Namespace) -> int:
    """Gives an entry another password; its rights stay."""
    if len(args.names) > 1 or args.scope or args.queue:
        raise UsageError("change takes one name; rights are changed in the file")
    name, line = args.names[0], ""
    check_known(path, "password", [name], read_passwords)
    line = _hash_line(args)

    def change(section: "re.Match[str]") -> str:
        return re.sub(r"(?m)^scrypt\s*=.*$", lambda _: line, section[0])

    text = path.read_text(encoding="utf-8")
    changed = re.sub(section_pattern("password", name), change, text)
    if changed == text:
        raise TarryError(f"{path}: {name} is not written as a section [passwords.{name}]; change it by hand")
    write(path, changed)
    return _report(args, name, "changed")


def _report(args: argparse.Namespace, name: str, what: str) -> int:
    if args.json:
        print_json({"name": name, what: True})
    else:
        say(f"{name} {what}")
    return 0


def _hash_line(args: argparse.Namespace) -> str:
    return f"scrypt = {as_toml(str(hash_password(_password(args.stdin))))}"


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
