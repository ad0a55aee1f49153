"""Commands made of methods: `tarry limits set NAME --limit 5`. Each subject says how its answers look on a terminal."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo

from tarry.cli.audit import write_acts
from tarry.cli.operate.background import ask, finish
from tarry.cli.printing import print_json
from tarry.client.acting import command_actor
from tarry.client.audit.log import DONE, Act
from tarry.client.operations.operation import Operation, OperationRecord
from tarry.errors import TarryError, UsageError
from tarry.model.refusals import NotPossible
from tarry.operate.access import AnonymousCaller
from tarry.operate.call import MethodCall, audited
from tarry.operate.field_docs import field_docs
from tarry.operate.method import Method, convert_values, is_list
from tarry.operate.problem import RequestError
from tarry.process.loading import CommandContext
from tarry.terminal import harmless, say

CommandHandler = Callable[..., Any]
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
    is_done: Callable[[Any], bool] = lambda answer: True
    """Whether an answer says that it was done."""

    def option(self, field: str) -> str:
        """How the field is written as an option."""
        return "--" + self.options.get(field, field).replace("_", "-")


class CommandUser(AnonymousCaller):
    """The user of a command, who may do everything."""

    name = command_actor().name


class CommandCall(MethodCall):
    """A command, while its method runs."""

    __slots__ = ("look_of", "name", "setup", "yes")

    def __init__(self, setup: CommandContext, method: Method, subject: Subject, name: str, yes: bool = False) -> None:
        super().__init__(setup.app if subject.needs_app else setup.home, CommandUser(), method.scope, name)
        self.setup, self.look_of, self.name, self.yes = setup, subject, name, yes

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
        return self.look_of.option(field)


def add_methods(
    name: str, subject: Subject, commands: "argparse._SubParsersAction[argparse.ArgumentParser]"
) -> argparse.ArgumentParser:
    """Adds the command of a subject to the parser, and returns its parser."""
    parser = commands.add_parser(name, help=subject.help, description=subject.description or None)
    methods = {method.command.partition(" ")[2]: method for method in subject.methods if method.command}
    parser.add_argument("action", nargs="?", choices=tuple(dict.fromkeys((*subject.own, *methods))), default="list")
    parser.add_argument("names", nargs="*", metavar="NAME", help=subject.names)
    derived = [method for action, method in methods.items() if action not in subject.own]
    for field, kind in {one.name: (one, kind) for method in derived for one, kind in _fields(method)}.values():
        option = subject.option(field.name)
        parser.add_argument(option, dest=_dest(option), help=partial(_describe, field, kind), **_shape(field))  # type: ignore[arg-type]
    if any(method.answer is OperationRecord for method in methods.values()):
        parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(run=partial(run_method, name, subject), methods=methods)
    return parser


def run_method(name: str, subject: Subject, args: argparse.Namespace) -> int:
    """Calls the method of the action, for each name. Status 0 once done; 1 if one was not, or the user did not say
    yes."""
    if args.action in subject.own:
        return subject.own[args.action](args)
    method: Method = args.methods[args.action]
    has_names = "path" in method.parts
    if args.names and not has_names:
        raise UsageError(f"{args.action} takes no names; `tarry {name}` shows them all")
    if has_names and not args.names:
        raise UsageError(f"{args.action} which {name.removesuffix('s')}? tarry {name} {args.action} {subject.names}")
    setup, yes = CommandContext.of(args), getattr(args, "yes", False)
    calls = [CommandCall(setup, method, subject, one, yes) for one in args.names or [""]]
    done = call_all(setup, method, calls, _options(method, subject, args))
    answers = list(done.values())
    if method.answer is None and subject.show is not None:
        answers = [_shown(subject.show, call) for call in calls]
    if args.json:
        print_json([one for one in answers if one is not None] if has_names else answers[0])
    elif has_names:
        subject.printers[args.action](calls[0], list(done), answers)
    else:
        subject.printers[args.action](calls[0], answers[0])
    return 0 if len(done) == len(calls) and all(map(subject.is_done, answers)) else 1


def call_all(
    setup: CommandContext, method: Method, calls: Sequence[CommandCall], options: Mapping[str, Any]
) -> dict[str, Any]:
    """What the method answers to each call, by name; the errors of commands. What cannot be done to one is told on
    stderr, and the others go on. The log of acts has what became of each."""
    acts: list[Act] = []
    answers: dict[str, Any] = {}
    try:
        parts = [{**_path(method, call.name), **options} for call in calls]
        if method.check is not None and len(calls) > 1:
            # All that are named have to be there before the first is changed.
            for call, each in zip(calls, parts, strict=True):
                _call(method, method.check, call, each, lambda act: None if act.outcome == DONE else acts.append(act))
        for call, each in zip(calls, parts, strict=True):
            try:
                answers[call.name] = _call(method, method.handler, call, each, acts.append)
            except (RequestError, NotPossible) as error:
                if getattr(error, "status", 409) != 409:
                    raise
                say(f"tarry: {call.name}: {harmless(str(error))}", file=sys.stderr)
    except RequestError as error:
        if error.status not in _MISUSE:
            raise TarryError(str(error)) from None
        # It was never begun.
        acts = [act for act in acts if act.outcome == DONE]
        raise UsageError(str(error)) from None
    finally:
        write_acts(setup, acts)
    return answers


def _call(
    method: Method, function: CommandHandler, call: CommandCall, parts: Mapping[str, Any], record: Callable[[Act], None]
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


def _options(method: Method, subject: Subject, args: argparse.Namespace) -> dict[str, Any]:
    """The values of `query` and `body` that options gave; UsageError."""
    taken = {field.name for field, _ in _fields(method)}
    for action, other in args.methods.items():
        for field, _ in _fields(other) if action not in subject.own else ():
            option = subject.option(field.name)
            if field.name not in taken and getattr(args, _dest(option)) is not None:
                raise UsageError(f"{args.action} takes no {option}")
    return {
        part: _values(method.parts[part], part, subject, args) for part in ("query", "body") if part in method.parts
    }


def _values(kind: type, part: str, subject: Subject, args: argparse.Namespace) -> Any:
    given = {one.name: getattr(args, _dest(subject.option(one.name))) for one in msgspec.structs.fields(kind)}
    try:
        return convert_values({name: value for name, value in given.items() if value is not None}, kind, part)
    except RequestError as error:
        option = subject.option(error.field or "")
        raise UsageError(str(error).replace(f"{part}: {error.field}", option)) from None


def _dest(option: str) -> str:
    return option.strip("-").replace("-", "_")


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
