"""Calls as values: what `task.s(...)` gives, and what chains, groups and chords are made of."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tarry.client.flows.block import Flow
from tarry.client.flows.node import Node
from tarry.compat.celery.apps import current_app
from tarry.compat.celery.calling import SendOptions, as_list, envelope_of, options_of
from tarry.compat.celery.differences import CeleryNotSupported, differs
from tarry.compat.celery.flow_result import ResultStep, result_of_flow
from tarry.compat.celery.message import NOTHING, EnvelopedArguments, is_announced, to_json
from tarry.compat.celery.result import AsyncResult
from tarry.tasks.call import Call

COLLECT = "tarry.compat.celery.collect"
"""The task that makes one list of several results."""

_INSTEAD = {
    "freeze": "the id is that of the result: element.delay().id",
    "stamp": "headers travel with calls: apply_async(headers={...})",
    "flatten_links": 'those of a call are in its options: element.options["link"]',
}
"""What Celery has on elements, and what to write."""

Before = Node[Any] | list[Node[Any]] | None
"""What an element waits for: a node, or several that stand side by side."""
JOIN: list[Callable[[Any, Any], Any]] = []
"""What `|` makes of two elements: `canvas`, which knows all kinds, says it."""
KINDS: dict[str, Callable[[Mapping[str, Any], Any], Any]] = {}
"""What makes elements of more than one call out of the `kwargs` of their dicts, by kind; of `canvas`, too."""
NO_VALUE: Any = object()
"""Nothing comes before."""


class CanvasElement(dict[str, Any]):
    """What can be put together with `|`, and enqueued. It is a dict of Celery's form, so it can be JSON, also within
    the arguments of a call; `signature(...)` makes the element of it again."""

    app: Any = None

    def __init__(self, kind: str | None, task: str, kwargs: dict[str, Any], app: Any, **rest: Any) -> None:
        super().__init__(
            {"task": task, "args": (), "kwargs": kwargs, "options": {}, "subtask_type": kind, "immutable": False}
        )
        self.update(rest)
        self.app = app

    def steps(self, flow: Flow, app: Any, before: Before) -> list[Before]:
        """Adds it to a flow, behind these nodes; returns what comes last of each of its steps."""
        raise NotImplementedError

    def place(self, flow: Flow, app: Any, before: Before) -> Before:
        """Adds it to a flow, behind these nodes; returns those that come last. TypeError if there is no call in it."""
        if not (placed := self.steps(flow, app, before)):
            raise TypeError(f"{type(self).__name__}() needs a call: {type(self).__name__}(first.s(...), second.s())")
        return placed[-1]

    def run_now(self, app: Any, before: Any = NO_VALUE) -> Any:
        """Runs it in this process, with the value of what comes before; returns an EagerResult."""
        raise NotImplementedError

    def calls(self) -> "list[Signature]":
        """The calls that it is made of."""
        raise NotImplementedError

    def is_nothing(self) -> bool:
        """Whether there is nothing to enqueue."""
        return False

    def set_options(self, options: Mapping[str, Any]) -> None:
        """Sets options of the calls that start first."""
        raise NotImplementedError

    def delay(self, /, *args: Any, **kwargs: Any) -> Any:
        """Enqueues it; the arguments are added to those of the first call."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Any = None, kwargs: Any = None, link: Any = None, link_error: Any = None, **options: Any
    ) -> Any:
        """Enqueues it. As with Celery, options such as `queue` and `countdown` are for the calls that start first: the
        first of a chain, all of a group, all of a chord (its header has no `countdown`, which is for the body). None
        if there is no call in it."""
        whole = self.with_arguments(tuple(args or ()), dict(kwargs or {}))
        app = self.find_app()
        if options:
            whole.set_options(options)
        for errback in as_list(link_error):
            whole.link_error(errback)
        return whole.run_now(app) if app.conf.task_always_eager else whole.start(app, as_list(link))

    def apply(self, args: Any = None, kwargs: Any = None, **ignored: Any) -> Any:
        """Runs it here and now; returns an EagerResult."""
        return self.with_arguments(tuple(args or ()), dict(kwargs or {})).run_now(self.find_app())

    def find_app(self) -> Any:
        """Its app, or that of its first call, or the current one."""
        return self.app or next((call.app for call in self.calls() if call.app), None) or current_app()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Enqueues it."""
        return self.delay(*args, **kwargs)

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A copy with more arguments for what comes first."""
        raise NotImplementedError

    def clone(self, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
        """A copy, with options. CeleryNotSupported for arguments, which Celery does not look at here."""
        if args or kwargs:
            name = type(self).__name__
            raise CeleryNotSupported(f"{name}.clone(args): give them when it is enqueued: {name}(...).delay(*args)")
        copied = self.with_arguments((), {})
        copied.set_options(options)
        return copied

    def start(self, app: Any, links: Sequence[Any] = ()) -> Any:
        """Stores the flow; returns its FlowResult, or GroupFlowResult. None: it has no call."""
        if self.is_nothing():
            return None
        with app.flow(type(self).__name__) as flow:
            steps = self.steps(flow, app, None)
            last = steps[-1]
            node = flow.add(collect(app, last)) if isinstance(last, list) else last
            place_links(flow, app, node, links)
            if node is not None:
                flow.returns(node)
        return result_of_flow(flow.handle, app, [indices_of(step) for step in steps])

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, CanvasElement):
            return NotImplemented
        return JOIN[0](self, other)

    def __getattr__(self, name: str) -> Any:
        """AttributeError, or CeleryNotSupported for what Celery has here."""
        if name in _INSTEAD:
            raise CeleryNotSupported(f"{type(self).__name__}.{name}: {_INSTEAD[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # That of dict would put the items of the other one into this.
    __ior__ = __or__

    def __invert__(self) -> Any:
        """Enqueues it, and waits for the result."""
        return self.delay().get()

    def __copy__(self) -> Any:
        return signature(dict(self), app=self.app)

    def __deepcopy__(self, memo: Any) -> Any:
        # Without the app, of which there is one.
        return signature(copy.deepcopy(dict(self), memo), app=self.app)

    def __reduce__(self) -> Any:
        return signature, (dict(self),)

    def set(self, immutable: bool | None = None, **options: Any) -> Any:
        """Sets options of the calls that start first, and returns it."""
        self.set_options({**options, **({} if immutable is None else {"immutable": immutable})})
        return self

    def link(self, other: Any) -> Any:
        """Refused for what is more than one call."""
        raise CeleryNotSupported(f"{type(self).__name__}.link(...): write chain(first, second)")

    def link_error(self, errback: Any) -> Any:
        """Has the errback called if one of its calls fails for good; returns it. For a chord, it is called once."""
        for call in self.calls():
            call.link_error(errback)
        return errback

    def on_error(self, errback: Any) -> Any:
        """`link_error`, but returns the element."""
        self.link_error(errback)
        return self


class Signature(CanvasElement):
    """A call of a task as a value, with options of `apply_async`."""

    def __init__(
        self,
        task: str,
        args: Any = (),
        kwargs: Any = None,
        options: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        app: Any = None,
    ) -> None:
        rest = {"args": tuple(args or ()), "options": dict(options or {}), "immutable": immutable}
        super().__init__(None, task, dict(kwargs or {}), app, **rest)

    @property
    def task(self) -> str:
        """The task's name."""
        name: str = self["task"]
        return name

    name = task

    @property
    def args(self) -> tuple[Any, ...]:
        """Its positional arguments."""
        return tuple(self["args"])

    @property
    def kwargs(self) -> dict[str, Any]:
        """Its arguments by name."""
        found: dict[str, Any] = self["kwargs"]
        return found

    @property
    def options(self) -> dict[str, Any]:
        """Those of `apply_async`."""
        found: dict[str, Any] = self["options"]
        return found

    @property
    def immutable(self) -> bool:
        """Whether it takes no result of another."""
        return bool(self["immutable"])

    def set_options(self, options: Mapping[str, Any]) -> None:
        self.options.update({name: value for name, value in options.items() if name != "immutable"})
        self["immutable"] = bool(options.get("immutable", self.immutable))

    def clone(self, args: Any = (), kwargs: Any = None, **options: Any) -> "Signature":
        """A copy with more arguments, which come first, and options."""
        if self.immutable:
            args, kwargs = (), None
        merged = {**self.kwargs, **(kwargs or {})}
        more = {**self.options, **options}
        return Signature(self.task, (*args, *self.args), merged, more, immutable=self.immutable, app=self.app)

    def replace(self, args: Any = None, kwargs: Any = None, options: Any = None) -> "Signature":
        """A copy with other arguments or options in the place of its own."""
        copied = self.clone()
        copied["args"] = copied.args if args is None else tuple(args)
        copied["kwargs"] = copied.kwargs if kwargs is None else dict(kwargs)
        copied["options"] = copied.options if options is None else dict(options)
        return copied

    def with_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "Signature":
        return self.clone(args, kwargs)

    def calls(self) -> "list[Signature]":
        return [self]

    def link(self, other: Any) -> Any:
        """Has the other call run after this one, with its result; returns it."""
        self.options["link"] = [*as_list(self.options.get("link")), other]
        return other

    def link_error(self, errback: Any) -> Any:
        self.options["link_error"] = [*as_list(self.options.get("link_error")), errback]
        return errback

    def apply_async(
        self, args: Any = None, kwargs: Any = None, link: Any = None, link_error: Any = None, **options: Any
    ) -> Any:
        """Enqueues it as one job."""
        whole = self.clone(tuple(args or ()), kwargs, **options)
        for each in as_list(link):
            whole.link(each)
        for errback in as_list(link_error):
            whole.link_error(errback)
        app = self.app or current_app()
        task = app.find_celery_task(self.task)
        # The task's own, which a class may override.
        sending = app.send_task if task is None else task.apply_async
        more = (self.task,) if task is None else ()
        return sending(*more, whole.args, whole.kwargs, **whole.options)

    def start(self, app: Any, links: Sequence[Any] = ()) -> AsyncResult:
        """Stores it as a flow, with the calls that follow; returns the AsyncResult of this one."""
        options = self.options
        if options.get("task_id"):
            differs(f"{self.task}: task_id= beside link= has no effect")
            options = {name: value for name, value in options.items() if name != "task_id"}
        with app.flow(self.task) as flow:
            node = flow.add(Signature(self.task, self.args, self.kwargs, options).call(app, None))
            place_links(flow, app, node, as_list(options.get("link")))
            flow.returns(node)
        return AsyncResult(next(flow.handle.nodes()).id, app=app)

    def run_now(self, app: Any, before: Any = NO_VALUE) -> Any:
        whole = self if before is NO_VALUE else self.clone((before,))
        return app.celery_task(self.task).apply(whole.args, whole.kwargs, **whole.options)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Calls the function in this process."""
        whole = self.clone(args, kwargs)
        return (self.app or current_app()).celery_task(self.task)(*whole.args, **whole.kwargs)

    def steps(self, flow: Flow, app: Any, before: Before) -> list[Before]:
        node = flow.add(self.call(app, before), after=nodes_of(before))
        place_links(flow, app, node, as_list(self.options.get("link")))
        return [node]

    def call(self, app: Any, before: Before) -> Call[Any]:
        """The call with the result of what comes before as its first argument, unless it is immutable."""
        taken = () if before is None or self.immutable else (result_of(before),)
        kwargs: dict[str, Any] = to_json(self.kwargs)
        if (envelope := envelope_of(self.options)) is not NOTHING or is_announced():
            app.pass_envelopes()
            kwargs = EnvelopedArguments(kwargs)
            kwargs.envelope = envelope
        options = options_of(app, self.task, self.options)
        args = (*taken, *(to_json(value) for value in self.args))
        return Call(app.named(self.task), args, kwargs, options)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it; its own links are left out."""
        left = {name: value for name, value in self.options.items() if name not in ("link", "link_error")}
        return {
            "task": self.task, "args": list(self.args), "kwargs": self.kwargs, "options": left,
            "immutable": self.immutable,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"{self.task}({', '.join([*map(repr, self.args), *(f'{n}={v!r}' for n, v in self.kwargs.items())])})"


def signature(task: Any, args: Any = (), kwargs: Any = None, app: Any = None, **options: Any) -> Any:
    """A call of the task of that name; also an element of a dict, as `json.loads(json.dumps(element))` gives it."""
    if isinstance(task, CanvasElement):
        return task
    if isinstance(task, Mapping):
        return _of_dict(task, app)
    immutable = bool(options.pop("immutable", False))
    name, own = getattr(task, "name", task), app or getattr(task, "_app", None)
    return Signature(name, args, kwargs, options.pop("options", options), immutable=immutable, app=own)


def _of_dict(given: Mapping[str, Any], app: Any) -> Any:
    kind = given.get("subtask_type")
    if kind:
        if kind not in KINDS:
            raise CeleryNotSupported(f"a {kind} of Celery's as a dict: send the calls that it is made of")
        return KINDS[kind](given.get("kwargs") or {}, app)
    options = dict(given.get("options") or {})
    for name in ("link", "link_error"):
        if options.get(name):
            options[name] = [signature(each, app=app) for each in as_list(options[name])]
    immutable = bool(given.get("immutable"))
    return Signature(given["task"], given.get("args"), given.get("kwargs"), options, immutable=immutable, app=app)


def send_linked(app: Any, task: str, sending: SendOptions) -> AsyncResult:
    """Stores a call with those that follow it."""
    return Signature(task, sending.args, sending.kwargs, sending.options).start(app)


def place_links(flow: Flow, app: Any, node: Any, links: Sequence[Any]) -> None:
    """Adds the calls that follow a node; what becomes of them is nothing to the flow."""
    for link in map(signature, links):
        if isinstance(link, Signature):
            added = flow.add(link.call(app, node), after=[node], on_failure="go_on")
            place_links(flow, app, added, as_list(link.options.get("link")))
        else:
            link.place(flow, app, node)


def nodes_of(before: Before) -> list[Node[Any]]:
    """The nodes that are waited for."""
    if before is None:
        return []
    return before if isinstance(before, list) else [before]


def indices_of(before: Before) -> ResultStep:
    """The index of the job whose result it is, or those of several."""
    if isinstance(before, list):
        return [index for node in before if (index := node.index) is not None]
    if before is None:
        return []
    return [index for ref in before.refs for index in ref.nodes] if before.index is None else before.index


def result_of(before: Node[Any] | list[Node[Any]]) -> Any:
    """What the next call gets."""
    return [node.result for node in before] if isinstance(before, list) else before.result


def collect(app: Any, last: Any) -> Call[Any]:
    """A call that makes one list of these."""
    return Call(app.named(COLLECT), (result_of(last),), {})
