"""Commands made of methods: `tarry limits set NAME --limit 5`. Each subject says how its answers look on a terminal."""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, replace

from tarry.cli.shared.printing import NotConfirmed, print_json
from tarry.client.acting import command_actor
from tarry.client.audit.log import DONE, Act, ActLog
from tarry.errors import TarryError, UsageError
from tarry.model.refusals import NotPossible
from tarry.operate.access import AnonymousCaller, Scope
from tarry.operate.call import MethodCall, audited
from tarry.operate.method import Method, choices_of, convert_values, field_docs, is_list
from tarry.operate.method import method as make_method
from tarry.operate.problem import RequestError, in_words
from tarry.process.loading import CommandContext
from tarry.terminal import escape_control, print_line

# Many of these commands need neither the app nor a store, and loading them takes time.
if TYPE_CHECKING:
    from tarry.app import App
    from tarry.client.operations.operation import Operation
    from tarry.keeper.host_requests import HostRequest
    from tarry.model.job import Job
    from tarry.store.base import Store
    from tarry.store.queries.hosts import Host

CommandHandler = Callable[..., Any]
Words = tuple[Sequence[str], Mapping[str, Any]]
"""Names, and values of fields."""
_MISUSE = (400, 422)
"""Statuses of errors that are those of a command called as it cannot be."""


def command_method(
    command: str, scope: Scope = Scope.ADMIN, check: CommandHandler | None = None
) -> Callable[[CommandHandler], Method]:
    """Makes a method of a function that only a command calls: for what is done to files of this host."""
    return make_method("", scope, tag="", command=command, check=check)


class Subject(Struct, frozen=True):
    """How the methods of one subject look on a terminal."""

    methods: Sequence[Method]
    printers: Mapping[str, Callable[..., None]]
    """How the answer of each action is printed: a function of the call, the names and the answers; of the action
    without names, of the call and its answer."""
    help: str
    description: str = ""
    options: Mapping[str, str] = {}
    """What fields are called as options, where that is another name; "move queue": the field of that action."""
    names: str = "NAME"
    """What is to be named."""
    show: Method | None = None
    """What tells how a thing is after a method that answers nothing."""
    needs_app: bool = False
    warns: bool = True
    """Whether it tells of shards that are away; for that it opens the store."""
    own: Mapping[str, Callable[[argparse.Namespace], int]] = {}
    """Actions that show more than one method answers."""
    words: Mapping[str, Callable[[argparse.Namespace], Words]] = {}
    """Actions whose words are not names alone: functions that give the names, and the values of fields."""
    worded: Sequence[str] = ()
    """The fields of these: they are no options."""
    extra: Mapping[str, Sequence[str]] = {}
    """Options that are no fields, each with the actions that take it."""
    is_done: Callable[[Any], bool] = lambda answer: True
    """Whether an answer says that it was done."""

    def option(self, field: str, method: Method) -> str:
        """How the field of a method is written as an option."""
        action = method.command.partition(" ")[2]
        name = self.options.get(f"{action} {field}") or self.options.get(field, field)
        return "--" + name.replace("_", "-")


class CommandUser(AnonymousCaller):
    """The user of a command, who may do everything."""

    def __init__(self) -> None:
        self.name = command_actor().name


class CommandCall(MethodCall):
    """A command, while its method runs."""

    __slots__ = ("look_of", "method", "name", "setup", "timeout", "yes")
    may_take_long = True

    def __init__(
        self, setup: CommandContext, args: argparse.Namespace, method: Method, subject: Subject, name: str
    ) -> None:
        super().__init__(CommandUser(), method.scope, name)
        self.setup, self.method, self.look_of, self.name = setup, method, subject, name
        self.yes, self.timeout = getattr(args, "yes", False), getattr(args, "timeout", None)

    @property
    def app(self) -> "App":
        """See `MethodCall`. Loaded at its first use."""
        return self.setup.app if self.look_of.needs_app else self.setup.home

    def sync_tasks(self) -> None:
        """See `MethodCall`. While the store is away, the tasks of the app and the settings are known all the same."""
        self.setup.known_tasks()

    def find_tasks(self, jobs: "Iterable[Job]") -> None:
        """See `MethodCall`. HTTP tasks are read only where a job may be of one."""
        if any(job.task not in self.app.tasks for job in jobs):
            self.sync_tasks()

    def ask(self, host: "Host", request: "HostRequest", job: "Job | None" = None) -> "HostRequest":
        """Waits for the outcome; ResultTimeout."""
        from tarry.cli.shared.host_requests import await_outcome  # noqa: PLC0415 - as the types above

        super().ask(host, request, job)
        return await_outcome(self.client, host, request, self.timeout, job)

    def submit(self, operation: "Operation") -> "Operation":
        """Asks whether to do it, and waits for its end; NotConfirmed, TarryError."""
        from tarry.cli.operate.background import ask, finish  # noqa: PLC0415 - as the types above

        ask(self.client, operation, self.yes)
        return finish(self.app, operation)

    def way_to(self, method: Method) -> str:
        """See `MethodCall`."""
        return f"tarry {method.command.removesuffix(' list')}"

    def option(self, field: str) -> str:
        """See `MethodCall`."""
        return self.look_of.option(field, self.method)


def add_methods(
    name: str, subject: Subject, commands: "argparse._SubParsersAction[argparse.ArgumentParser]"
) -> argparse.ArgumentParser:
    """Adds the command of a subject to the parser, and returns its parser."""
    parser = commands.add_parser(name, help=subject.help, description=subject.description or None)
    methods = {one.command.partition(" ")[2]: one for one in subject.methods if one.command.startswith(f"{name} ")}
    actions = tuple(dict.fromkeys((*subject.own, *methods)))
    usual: dict[str, Any] = {"nargs": "?", "default": "list"} if "list" in actions else {}
    parser.add_argument("action", choices=actions, **usual)
    is_word = subject.names.isalpha()
    parser.add_argument(
        "names", nargs="*", metavar=subject.names if is_word else "NAME", help="" if is_word else subject.names
    )
    derived = [method for action, method in methods.items() if action not in subject.own]
    options = {subject.option(one.name, method): (one, kind) for method in derived for one, kind in _fields(method)}
    for option, (field, kind) in options.items():
        if field.name not in subject.worded:
            action = parser.add_argument(option, dest=_dest(option), **_shape(field))
            # Not given to `add_argument`, which since Python 3.14 wants a text.
            action.help = partial(_describe, field, kind)  # type: ignore[assignment]
    if any(method.asks_first for method in methods.values()):
        parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(run=partial(run_method, name, subject), methods=methods)
    return parser


def run_method(name: str, subject: Subject, args: argparse.Namespace, setup: CommandContext | None = None) -> int:
    """Calls the method of the action, for each name. Status 0 once done; 1 if one was not, or the user did not say
    yes. setup: what the command has opened already."""
    if args.action in subject.own:
        return subject.own[args.action](args)
    method: Method = args.methods[args.action]
    has_names, read = "path" in method.parts, subject.words.get(args.action)
    names, given = read(args) if read else (args.names, {})
    if has_names and not names:
        raise UsageError(f"{args.action} which {name.removesuffix('s')}? tarry {name} {args.action} {subject.names}")
    if names and not has_names:
        raise UsageError(f"{args.action} takes no names; `tarry {name}` shows them all")
    setup = setup or CommandContext.of(args)
    calls = [CommandCall(setup, args, method, subject, one) for one in names or [""]]
    try:
        done = call_all(setup, method, calls, read_options(method, subject, args, given))
    except NotConfirmed:
        return 1
    answers = list(done.values())
    if method.answer is None and subject.show is not None:
        answers = [_shown(subject.show, call) for call in calls]
    if subject.warns:
        warn_of_missing(setup.client.store)
    if args.json:
        print_json([one for one in answers if one is not None] if has_names else answers[0])
    elif has_names:
        subject.printers[args.action](calls[0], list(done), answers)
    else:
        subject.printers[args.action](calls[0], answers[0])
    return 0 if len(done) == len(calls) and all(map(subject.is_done, answers)) else 1


def warn_of_missing(store: "Store") -> None:
    """Tells on stderr of each shard that is away."""
    for shard in getattr(store, "shards", ()):
        if shard.away and not shard.is_removed:
            print_line(f"tarry: {shard.url} is away: {shard.away}; what follows is without it", file=sys.stderr)


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
                print_line(f"tarry: {call.name}: {escape_control(str(error))}", file=sys.stderr)
    except (NotConfirmed, UsageError):
        # It was never begun.
        acts = [act for act in acts if act.outcome == DONE]
        raise
    except RequestError as error:
        if error.status not in _MISUSE:
            raise TarryError(str(error)) from None
        acts = [act for act in acts if act.outcome == DONE]
        raise UsageError(in_words(str(error))) from None
    finally:
        is_dry = getattr(options.get("body"), "dry_run", False)
        write_acts(setup, [] if is_dry else acts)
    return answers


def _call(
    method: Method, function: CommandHandler, call: CommandCall, parts: Mapping[str, Any], record: Callable[[Act], None]
) -> Any:
    named = msgspec.structs.asdict(parts["path"]) if "path" in parts else {}
    with audited(method, call, named, command_actor(), record):
        return function(call, **parts)


def write_acts(setup: CommandContext, acts: Sequence[Act]) -> None:
    """Writes acts, which are now, to the store's log of acts. The command stays as it ended if that fails: then a line
    on stderr says so."""
    now = time.time_ns() // 1000
    try:
        if acts:
            ActLog(setup.client.store).append([replace(act, at=now) for act in acts], now)
    except (TarryError, OSError, ValueError) as error:
        print_line(
            f"tarry: the log of acts of the store has no entry of this: {escape_control(str(error))}", file=sys.stderr
        )


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


def read_options(
    method: Method, subject: Subject, args: argparse.Namespace, given: Mapping[str, Any] = {}
) -> dict[str, Any]:
    """The values of `query` and `body`, as options gave them; UsageError. given: what words gave, by field."""
    for name, actions in subject.extra.items():
        if args.action not in actions and getattr(args, name) not in (None, False):
            raise UsageError(f"{args.action} takes no --{name}")
    taken = {subject.option(field.name, method) for field, _ in _fields(method)}
    for action, other in args.methods.items():
        for field, _ in _fields(other) if action not in subject.own else ():
            option = subject.option(field.name, other)
            if option not in taken and field.name not in subject.worded and getattr(args, _dest(option)) is not None:
                raise UsageError(f"{args.action} takes no {option}")
    return {part: _values(method, part, subject, args, given) for part in ("query", "body") if part in method.parts}


def _values(method: Method, part: str, subject: Subject, args: argparse.Namespace, words: Mapping[str, Any]) -> Any:
    kind = method.parts[part]
    if not _is_struct(kind):
        return words
    named = {one.name: subject.option(one.name, method) for one in msgspec.structs.fields(kind)}
    options = {name: getattr(args, _dest(option), None) for name, option in named.items()}
    given = {name: value for name, value in {**options, **words}.items() if value is not None and name in options}
    try:
        return convert_values(given, kind, part)
    except RequestError as error:
        option = subject.option(error.field or "", method)
        if error.field in options and error.field not in given:
            raise UsageError(f"{args.action} needs {option}") from None
        raise UsageError(in_words(str(error).replace(f"{part}: {error.field}", option))) from None


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _dest(option: str) -> str:
    return option.strip("-").replace("-", "_")


def _fields(method: Method) -> Iterator[tuple[FieldInfo, type]]:
    """The fields of `query` and `body`, each with the Struct that has it."""
    for part in ("query", "body"):
        kind: Any = method.parts.get(part)
        if _is_struct(kind):
            yield from ((field, kind) for field in msgspec.structs.fields(kind))


def _shape(field: FieldInfo) -> dict[str, Any]:
    """How argparse reads the option of a field: as text, which the method then reads by its type."""
    if field.type is bool:
        return {"action": "store_const", "const": True}
    found: dict[str, Any] = {"action": "append"} if is_list(field.type) else {}
    if choices := choices_of(field.type):
        return {**found, "choices": choices}
    return {**found, "metavar": "N"} if "int" in str(field.type) else found


def _describe(field: FieldInfo, kind: type) -> str:
    """The help of an option."""
    described = field_docs(kind).get(field.name, "").rstrip(".").replace("%", "%%")
    return described[:1].lower() + described[1:]


def print_done(word: str) -> Callable[..., None]:
    """Prints the names, with this word."""
    return lambda _, names, found: print_line(f"{', '.join(names)} {word}")
