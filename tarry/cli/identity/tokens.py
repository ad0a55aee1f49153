"""`tarry tokens`: lists, adds and removes the tokens of the doors."""

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from tarry.cli.identity.entry_file import EntryFileEditor, EntryName, EntryPath, EntryRecord, NewRights, print_entries
from tarry.cli.operate.method_command import CommandCall, Subject, add_methods, command_method, print_done
from tarry.config.parser import as_toml
from tarry.model.limit import rate
from tarry.model.quantity import Short
from tarry.operate.access import Scope
from tarry.operate.problem import checking
from tarry.server.identity.tokens import digest, new_token, read_tokens
from tarry.terminal import print_line


class NewToken(NewRights, Struct, frozen=True):
    """What a new token allows."""

    task: list[Short] = []
    """Such as "shop.*", to put; default: those whose own queue it may use."""
    rate: Short | None = None
    """Requests in a period: "100/s"."""


class TokenRecord(EntryRecord, frozen=True):
    """A token."""

    rate: str | None


class TokenList(Struct, frozen=True):
    """All tokens of the file."""

    tokens: list[TokenRecord]


class AddedToken(Struct, frozen=True):
    """A token that was added; the file keeps only its digest."""

    name: str
    token: str


def _file(call: CommandCall) -> EntryFileEditor:
    return EntryFileEditor(call, "token", read_tokens)


def _check_known(call: CommandCall, path: EntryPath) -> None:
    _file(call).check_known(path.name)


@command_method("tokens list", Scope.READ)
def list_tokens(call: CommandCall) -> TokenList:
    """Lists the tokens with their rights."""
    file = _file(call)
    rates = read_tokens(file.path)
    return TokenList(
        [TokenRecord(one.name, one.scopes, one.queues, one.tasks, rates[one.name].rate) for one in file.records()]
    )


@command_method("tokens add")
def add_token(call: CommandCall, path: EntryPath, body: NewToken) -> AddedToken:
    """Adds a token."""
    file = _file(call)
    with checking("rate"):
        _ = body.rate and rate(body.rate)
    file.check_new(path.name, body)
    token = new_token()
    lines = [f'sha256 = "{digest(token).hex()}"', *([f"rate = {as_toml(body.rate)}"] if body.rate else [])]
    file.append(path.name, lines, body, body.task)
    return AddedToken(path.name, token)


@command_method("tokens remove", check=_check_known)
def remove_token(call: CommandCall, path: EntryPath) -> EntryName:
    """Removes a token."""
    return _file(call).change(path.name, lambda section: "")


def _print_tokens(_: CommandCall, names: Sequence[str], found: Sequence[AddedToken]) -> None:
    print_line("\n".join(one.token for one in found))


SUBJECT = Subject(
    (list_tokens, add_token, remove_token),
    {
        "list": lambda _, found: print_entries(found.tokens, "rate"),
        "add": _print_tokens,
        "remove": print_done("removed"),
    },
    "list, add or remove tokens of the HTTP API",
    """The tokens of the file that [server] tokens names. add prints the new token, once: the file keeps only its
    SHA-256. Servers notice a change within a second.""",
    warns=False,
)
add = partial(add_methods, "tokens", SUBJECT)
