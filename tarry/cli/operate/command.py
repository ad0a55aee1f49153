"""Commands made of methods: `tarry limits set NAME --limit 5`. Each subject says how its answers look on a terminal."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo

from tarry.cli.audit import write_acts
from tarry.cli.operate.background import NotConfirmed, ask, finish
from tarry.cli.printing import print_json
from tarry.client.audit.acting import command_actor
from tarry.client.audit.log import DONE, Act
from tarry.client.operations.operation import Operation, OperationRecord
from tarry.errors import TarryError, UsageError
from tarry.operate.access import Anyone
from tarry.operate.call import MethodCall, audited
from tarry.operate.field_docs import field_docs
from tarry.operate.method import Method, convert_values, is_list
from tarry.operate.problem import RequestError
from tarry.process.loading import Setup
from tarry.terminal import say

Handler = Callable[..., Any]
_MISUSE = (400, 422)
"""Statuses of errors that are those of a command called as it cannot be."""


class Subject(Struct, frozen=True):
    """How the methods of one subject look on a terminal."""

    methods: Sequence[Method]
    printers: Mapping[str, Callable[..., None]]
    """How the answer of each action is printed: a function of the call, the names and the answers; of the action
    without names, of the call and its answer."""
    help: str
    description: str = ""
    options: Mapping[str, str] = {}
    """What fields are called as options, where that is another name."""
    names: str = "NAME"
    """What is to be named."""
    show: Method | None = None
    """What tells how a thing is after a method that answers nothing."""
    needs_app: bool = False
    own: Mapping[str, Callable[[argparse.Namespace], int]] = {}
    """Actions that show more than one method answers."""
    arguments: Callable[[argparse.ArgumentParser], None] | None = None
    """Adds the options of those."""


class CommandUser(Anyone):
    """The user of a command, who may do everything."""

    name = command_actor().name


class CommandCall(MethodCall):
    """A command, while its method runs."""

    __slots__ = ("name", "options", "setup", "yes")

    def __init__(self, setup: Setup, method: Method, subject: Subject, name: str, yes: bool = False) -> None:
        super().__init__(setup.app if subject.needs_app else setup.home, CommandUser(), method.scope, name)
        self.setup, self.options, self.name, self.yes = setup, subject.options, name, yes

    def sync_tasks(self) -> None:
        """See `MethodCall`. While the store is away, the tasks of the app and the settings are known all the same."""
        self.setup.known_tasks()

    def submit(self, operation: Operation) -> Operation:
        """Asks whether to do it, and waits for its end; NotConfirmed, TarryError."""
        ask(self.client, operation, self.yes)
        return finish(self.app, operation)

    def way_to(self, method: Method) -> str:
        """See `MethodCall`."""
        return f"tarry {method.command.removesuffix(' list')}"

    def option(self, field: str) -> str:
        """See `MethodCall`."""
        return "--" + self.options.get(field, field).replace("_", "-")


def add_methods(name: str, subject: Subject, commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command of a subject to the parser."""
    parser = commands.add_parser(name, help=subject.help, description=subject.description or None)
    methods = {method.command.partition(" ")[2]: method for method in subject.methods if method.command}
    parser.add_argument("action", nargs="?", choices=(*methods, *(subject.own.keys() - methods)), default="list")
    parser.add_argument("names", nargs="*", metavar="NAME", help=subject.names)
    for field, kind in {one.name: (one, kind) for method in methods.values() for one, kind in _fields(method)}.values():
        option = subject.options.get(field.name, field.name).replace("_", "-")
        parser.add_argument(f"--{option}", dest=field.name, help=partial(_describe, field, kind), **_shape(field))  # type: ignore[arg-type]
    if any(method.answer is OperationRecord for method in methods.values()):
        parser.add_argument("--yes", action="store_true", help="do not ask")
    if subject.arguments is not None:
        subject.arguments(parser)
    parser.set_defaults(run=partial(run_method, name, subject, methods), methods=methods)


def run_method(name: str, subject: Subject, methods: Mapping[str, Method], args: argparse.Namespace) -> int:
    """Calls the method of the action, for each name; status 0 once done, 1 if the user did not say yes."""
    if args.action in subject.own:
        return subject.own[args.action](args)
    method, setup = methods[args.action], Setup.of(args)
    has_names = "path" in method.parts
    if args.names and not has_names:
        raise UsageError(f"{args.action} takes no names; `tarry {name}` shows them all")
    if has_names and not args.names:
        raise UsageError(f"{args.action} which {name.removesuffix('s')}? tarry {name} {args.action} {subject.names}")
    calls = [CommandCall(setup, method, subject, one, getattr(args, "yes", False)) for one in args.names or [""]]
    try:
        answers = _answers(setup, method, calls, _options(method, calls[0], args))
    except NotConfirmed:
        return 1
    if method.answer is None and subject.show is not None:
        answers = [_shown(subject.show, call) for call in calls]
    if args.json:
        print_json([one for one in answers if one is not None] if has_names else answers[0])
    elif has_names:
        subject.printers[args.action](calls[0], args.names, answers)
    else:
        subject.printers[args.action](calls[0], answers[0])
    return 0


def _answers(setup: Setup, method: Method, calls: Sequence[CommandCall], options: dict[str, Any]) -> list[Any]:
    """What the method answers to each call; the errors of commands. The log of acts has what became of each."""
    acts: list[Act] = []
    try:
        parts = [_path(method, call.name) | options for call in calls]
        if method.check is not None and len(calls) > 1:
            # All that are named have to be there before the first is changed.
            for call, each in zip(calls, parts, strict=True):
                _call(method, method.check, call, each, lambda act: None if act.outcome == DONE else acts.append(act))
        return [_call(method, method.handler, call, each, acts.append) for call, each in zip(calls, parts, strict=True)]
    except RequestError as error:
        if error.status not in _MISUSE:
            raise TarryError(str(error)) from None
        # It was never begun.
        acts = [act for act in acts if act.outcome == DONE]
        raise UsageError(str(error)) from None
    finally:
        write_acts(setup, acts)


def _call(
    method: Method, function: Handler, call: CommandCall, parts: Mapping[str, Any], record: Callable[[Act], None]
) -> Any:
    named = msgspec.structs.asdict(parts["path"]) if "path" in parts else {}
    with audited(method, call, named, command_actor(), record):
        return function(call, **parts)


def _shown(method: Method, call: CommandCall) -> Any:
    """The thing of this call as it is now; None: there is none."""
    try:
        return method.handler(call, **_path(method, call.name))
    except RequestError:
        return None


def _path(method: Method, name: str) -> dict[str, Any]:
    if "path" not in method.parts:
        return {}
    (field,) = msgspec.structs.fields(method.parts["path"])
    return {"path": convert_values({field.name: name}, method.parts["path"], "path")}


def _options(method: Method, call: CommandCall, args: argparse.Namespace) -> dict[str, Any]:
    """The values of `query` and `body` that options gave; UsageError."""
    taken = {field.name for field, _ in _fields(method)}
    for field in {one.name for other in args.methods.values() for one, _ in _fields(other)} - taken:
        if getattr(args, field) is not None:
            raise UsageError(f"{args.action} takes no {call.option(field)}")
    found = {}
    for part in ("query", "body"):
        if kind := method.parts.get(part):
            given = {one.name: getattr(args, one.name) for one in msgspec.structs.fields(kind)}
            try:
                found[part] = convert_values({k: v for k, v in given.items() if v is not None}, kind, part)
            except RequestError as error:
                raise UsageError(str(error).replace(f"{part}: {error.field}", call.option(error.field or ""))) from None
    return found


def _fields(method: Method) -> Iterator[tuple[FieldInfo, type]]:
    """The fields of `query` and `body`, each with the Struct that has it."""
    for part in ("query", "body"):
        if kind := method.parts.get(part):
            yield from ((field, kind) for field in msgspec.structs.fields(kind))


def _shape(field: FieldInfo) -> dict[str, Any]:
    """How argparse reads the option of a field: as text, which the method then reads by its type."""
    if field.type is bool:
        return {"action": "store_const", "const": True}
    number = {"metavar": "N"} if "int" in str(field.type) else {}
    return {"action": "append"} if is_list(field.type) else number


def _describe(field: FieldInfo, kind: type) -> str:
    """The help of an option."""
    described = field_docs(kind).get(field.name, "").rstrip(".").replace("%", "%%")
    return described[:1].lower() + described[1:]


def print_done(word: str) -> Callable[..., None]:
    """Prints the names, with this word."""
    return lambda _, names, found: say(f"{', '.join(names)} {word}")
