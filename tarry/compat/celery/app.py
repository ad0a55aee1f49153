"""`Celery(...)`: a tarry App whose tasks are made and called as Celery's are.

The modules that an app's tasks are in: `include`, `imports`, `autodiscover_tasks`.

A worker process, as signals tell of it: its start and its end.
"""

import importlib
import importlib.util
import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from tarry.app import App
from tarry.client.client import Client
from tarry.compat.celery import beat, calls, signals
from tarry.compat.celery.apps import add_app, configure_all, share, task_class
from tarry.compat.celery.attempt import ERRBACK, make_function, run_errback, send_failure, send_success
from tarry.compat.celery.calling import SendOptions, send, send_by_name
from tarry.compat.celery.control import Control
from tarry.compat.celery.differences import CeleryNotSupported, differs
from tarry.compat.celery.message import add_envelope
from tarry.compat.celery.result import AsyncResult
from tarry.compat.celery.settings import CelerySettings, apply_settings, limits_of, tell_limits
from tarry.compat.celery.signals import CelerySignal
from tarry.compat.celery.task import MAP, STARMAP, CeleryTask
from tarry.config.config import Config
from tarry.keeper.chores import Keeper
from tarry.model.retry import Retry
from tarry.store.rules.base import Store
from tarry.tasks.definition import full_name
from tarry.tasks.running import current

ONLY_WHEN_ASKED = Retry(None, only=("tarry.compat.celery",))
"""The rule of all tasks: what fails is tried again only if the task asks for it, as often as it does."""
_SETTINGS_BY_ARGUMENT = frozenset({"timezone", "imports"})
_INSTEAD = {
    "connection_for_read": "`tarry check` and /readyz say whether the store answers",
    "connection_for_write": "`tarry check` and /readyz say whether the store answers",
    "broker_connection": "`tarry check` and /readyz say whether the store answers",
    "pool": "there is no broker",
    "amqp": "there is no broker; queues are made by their first job",
    "backend": "results are kept with their jobs: AsyncResult(id)",
    "events": "`tarry top`, the console and /metrics",
    "steps": "there are no bootsteps: signals.worker_process_init, or app.on_close",
}


class Celery(App):
    """An app. `broker`, `backend` and settings of Celery's that have no part here warn once, with what to do instead.

    store: as that of App; default: TARRY_STORE, tarry.toml, else a file in the working directory.
    """

    Task: Any = CeleryTask

    def __init__(
        self,
        main: str | None = None,
        *,
        broker: str | None = None,
        backend: str | None = None,
        include: Iterable[str] = (),
        task_cls: Any = None,
        config_source: Any = None,
        store: Any = None,
        set_as_current: bool = True,
        **settings: Any,
    ) -> None:
        # Celery takes any function: one of a decorator without `wraps`, one that a factory of the app makes.
        super().__init__(store, closures=True)
        self.main = main
        self._is_current = set_as_current
        self._celery_tasks: dict[str, CeleryTask] = {}
        self._discover: list[Callable[[], Iterable[str]]] = []
        self._is_applied = self._passes_envelopes = False
        self.on_configure, self.on_after_configure = CelerySignal("on_configure"), CelerySignal("on_after_configure")
        self.on_after_finalize, self.on_after_fork = CelerySignal("on_after_finalize"), CelerySignal("on_after_fork")
        self.conf = CelerySettings(self._settings_changed)
        self.control = Control(self)
        self.Task = task_cls or CeleryTask
        self.conf.update(_given_settings(settings, broker, backend, include))
        if config_source is not None:
            self.config_from_object(config_source)
        self.native_task(name=calls.COLLECT)(canvas_results)
        self.native_task(name=ERRBACK, retry=3)(run_errback)
        for name, function in ((MAP, canvas_map), (STARMAP, canvas_starmap)):
            self.adopt(make_task(function, {"name": name, "bind": True}, CeleryTask))
        self.on_close(partial(after_close, self))
        add_app(self, set_as_current)

    def __getattr__(self, name: str) -> Any:
        """AttributeError, or CeleryNotSupported for what Celery has here."""
        if name in _INSTEAD:
            raise CeleryNotSupported(f"app.{name}: {_INSTEAD[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # Settings and modules

    def config_from_object(self, source: Any, silent: bool = False, force: bool = False, namespace: str = "") -> None:
        """Settings of a module by name, of an object or a dict. namespace: only names that begin with it count."""
        self.conf.load_later(source, namespace)
        self._settings_changed()

    def config_from_envvar(self, variable: str, silent: bool = False, force: bool = False) -> None:
        """Settings of the module that an environment variable names."""
        self.config_from_object(os.environ[variable])

    def add_defaults(self, settings: Any) -> None:
        """Settings that are used where nothing else says anything."""
        found = settings() if callable(settings) else settings
        self.conf.update({name: value for name, value in found.items() if name not in self.conf.given()})

    def autodiscover_tasks(self, packages: Any = None, related_name: str | None = "tasks", force: bool = False) -> None:
        """Imports `PACKAGE.tasks` of these packages when a worker starts; without packages, of Django's apps."""
        self._discover.append(lambda: find_related(packages, related_name))
        if force:
            self.import_modules()

    def import_modules(self) -> None:
        """Imports the modules of tasks: those of `include`, `imports` and of `autodiscover_tasks`."""
        import_tasks(self, self._discover)

    def configure(self, config: Config) -> None:
        configure_all(config)
        # `tarry start` and other commands call this; a program that only enqueues imports what it needs itself.
        self.import_modules()
        self.finalize()

    def take_config(self, config: Config) -> None:
        """The settings of the process, also where another app of it was named."""
        super().configure(config)

    def connection(self) -> tuple[Store, bool]:
        self.import_modules()
        self.finalize()
        return super().connection()

    def deliveries(self, store: Store, *args: Any, **kwargs: Any) -> Any:
        # Each worker calls it once, when it begins.
        self.finalize()
        began(self)
        return super().deliveries(store, *args, **kwargs)

    def keeper(self, store: Store, *args: Any, **kwargs: Any) -> Keeper:
        self.finalize()
        return super().keeper(store, *args, **kwargs)

    def _connect(self) -> Client:
        self.finalize()
        return super()._connect()

    def _settings_changed(self) -> None:
        if self._is_applied:
            self._apply_settings()

    def finalize(self, auto: bool = False) -> None:
        """Sends `on_after_configure` and `on_after_finalize`, and gives the tasks what the settings say of them. The
        first use of the app does it."""
        if self._is_applied:
            return
        # First, so that what the signals' functions change is taken over at once.
        self._is_applied = True
        for signal in (self.on_configure, self.on_after_configure, self.on_after_finalize):
            signal.send(self, source=self.conf)
        self._apply_settings()

    def _apply_settings(self) -> None:
        for task in list(self._celery_tasks.values()):
            apply_settings(self, task, self.tasks[task.name])
        beat.set_schedules(self)
        self._known_rules.clear()

    def add_periodic_task(self, schedule: Any, sig: Any, *args: Any, **options: Any) -> str:
        """Adds a line to `beat_schedule`: `sender.add_periodic_task(30.0, task.s(), name="often")`."""
        return beat.add_periodic_task(self, schedule, sig, *args, **options)

    # Tasks

    # tarry's own decorator, for tasks that are written anew.
    native_task = App.task

    def task(self, *fn: Any, **options: Any) -> Any:
        """`@app.task` or `@app.task(bind=True, max_retries=5)`, as Celery's; see docs/from/celery.md."""
        if fn:
            return self._own(make_task(fn[0], {}, self.Task))
        adopt = self.adopt if options.get("shared") is False else self._own
        return lambda function: adopt(make_task(function, options, self.Task))

    def _own(self, task: CeleryTask) -> CeleryTask:
        """Makes it a task of this app, which is enqueued here, and one that workers of other apps can run."""
        self.adopt(task)
        task._app = self
        return share(task)

    def adopt_shared(self, task: CeleryTask) -> None:
        """Makes it a task of this app, unless this has another one of that name."""
        known = self._celery_tasks.get(task.name)
        if known is None or known.__module__ == task.__module__:
            self.adopt(task, is_shared=True)

    def register_task(self, task: Any, **options: Any) -> CeleryTask:
        """Adds an instance of a Task class that has a `run`, or a class."""
        instance: CeleryTask = task() if isinstance(task, type) else task
        if not instance.name:
            instance.name = f"{type(instance).__module__}.{type(instance).__qualname__}"
        return self.adopt(tell_limits(instance))

    def adopt(self, task: CeleryTask, is_shared: bool = False) -> CeleryTask:
        """Makes it a task of this app. is_shared: of others, too."""
        function = make_function(task, task.__dict__.get("__wrapped__", task.run), task._bind)
        native = self._add_task(function, {"name": task.name, "retry": ONLY_WHEN_ASKED, **limits_of(self, task)})
        vars(native).update({name: getattr(task, name) for name in _CALLS})
        self._celery_tasks[task.name] = task
        if task._app is None or (is_shared and task.is_everywhere and self._is_current):
            task._app = self
        native.on_success(partial(send_success, task))
        native.on_dead(partial(send_failure, task))
        if self._is_applied:
            apply_settings(self, task, native)
            if any(line["task"] == task.name for line in self.conf.beat_schedule.values()):
                beat.set_schedules(self)
        return task

    def find_celery_task(self, name: str) -> CeleryTask | None:
        """The task of that name; None: this app has none."""
        return self._celery_tasks.get(name)

    def celery_task(self, name: str) -> CeleryTask:
        """The task of that name; UnknownTask."""
        if name not in self._celery_tasks:
            self.named(name)
            raise CeleryNotSupported(f"{name} is one of tarry's own tasks: enqueue it with app.enqueue({name!r}, ...)")
        return self._celery_tasks[name]

    def send_task(
        self, name: str, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any
    ) -> Any:
        """Enqueues by the task's name. One that this app does not have is taken as it is: a worker may know it."""
        if name not in self._celery_tasks and self._discover:
            self.import_modules()
        sending = SendOptions.of(args, kwargs, task_id, options)
        if name not in self._celery_tasks:
            return send_by_name(self, name, sending)
        if options.get("link"):
            return calls.send_linked(self, name, sending)
        self.finalize()
        return send(self, self.tasks[name], sending)

    def signature(self, task: Any, *args: Any, **kwargs: Any) -> calls.Signature:
        """A call of the task of that name; also an element of a dict."""
        found: calls.Signature = calls.signature(task, *args, **{**kwargs, "app": self})
        return found

    def AsyncResult(self, id: str, **ignored: Any) -> AsyncResult:  # noqa: N802 - Celery's name
        """The job of that id in this app's store."""
        return AsyncResult(id, app=self)

    def pass_envelopes(self) -> None:
        """Has the calls of flows take their headers along, from now on."""
        if not self._passes_envelopes:
            self._passes_envelopes = True
            self.middleware("enqueue")(add_envelope)

    def set_current(self) -> None:
        """Makes it the app of `shared_task` calls and of AsyncResult."""
        self._is_current = True
        add_app(self, True)

    set_default = set_current

    def worker_main(self, argv: Any = None) -> None:
        """Refused: workers are those of `tarry start`."""
        raise CeleryNotSupported("worker_main: run `tarry -a module:app start`, or app.run() for one process")

    start = worker_main

    @property
    def current_task(self) -> CeleryTask | None:
        """The task that runs this code; None: none."""
        running = current.get()
        return None if running is None else self._celery_tasks.get(running.task.name)


_CALLS = ("delay", "apply_async", "apply", "s", "si", "signature", "AsyncResult")
"""What tarry's own task gets of Celery's: `app.tasks[name].delay()` is usual."""


def _given_settings(given: Mapping[str, Any], broker: Any, backend: Any, include: Iterable[str]) -> dict[str, Any]:
    options = {name: value for name, value in given.items() if name in _SETTINGS_BY_ARGUMENT or "_" in name}
    for name in given.keys() - options.keys():
        if given[name] is not None:
            differs(f"Celery({name}=...) has no effect with tarry")
    own = {"broker_url": broker, "result_backend": backend, "include": tuple(include) or None}
    return {name: value for name, value in {**own, **options}.items() if value is not None}


def make_task(fn: Callable[..., Any], options: Mapping[str, Any], base: Any) -> CeleryTask:
    """A task of that function, which no app has yet."""
    settings = dict(options)
    kind = settings.pop("base", None) or base
    name, bind = settings.pop("name", None) or full_name(fn), bool(settings.pop("bind", False))
    # Each option is an attribute, also of the app's own, and is there when the class is made.
    own: type[CeleryTask] = type(kind.__name__, (kind,), {**settings, "name": name, "__module__": fn.__module__})
    task = own()
    task.define(fn, name, bind, settings)
    return tell_limits(task)


def shared_task(*fn: Any, **options: Any) -> Any:
    """`@shared_task` or `@shared_task(bind=True)`: a task of every app, with the options of `@app.task`."""
    base = task_class(CeleryTask)
    if fn:
        return _everywhere(make_task(fn[0], {}, base))
    return lambda function: _everywhere(make_task(function, options, base))


def _everywhere(task: CeleryTask) -> CeleryTask:
    task.is_everywhere = True
    return share(task)


def canvas_results(results: list[Any]) -> list[Any]:
    """Gives back the results of the calls that it waits for, as one list."""
    return results


def canvas_map(self: CeleryTask, task: str, it: list[Any]) -> list[Any]:
    """Calls the task with each of these."""
    called = self.app.celery_task(task)
    return [called(item) for item in it]


def canvas_starmap(self: CeleryTask, task: str, it: list[Any]) -> list[Any]:
    """Calls the task with the arguments of each of these."""
    called = self.app.celery_task(task)
    return [called(*args) for args in it]


ModuleNames = Callable[[], Iterable[str]]


def import_tasks(app: Any, discover: list[ModuleNames]) -> None:
    """Imports them; each of `discover` once, and it is taken out."""
    for name in (*_names(app.conf.include), *_names(app.conf.imports)):
        importlib.import_module(name)
    while discover:
        for name in discover.pop(0)():
            importlib.import_module(name)
    signals.import_modules.send(app)


def find_related(packages: Any, related_name: str | None) -> list[str]:
    """`PACKAGE.tasks` of those packages that have one; without packages, of Django's apps."""
    found = packages() if callable(packages) else packages
    if found is None:
        # Without packages, the app is one of Django's.
        found = [config.name for config in _django_apps().get_app_configs()]
    found = [found] if isinstance(found, str) else found
    names = [f"{package}.{related_name}" if related_name else package for package in found]
    return [name for name in names if importlib.util.find_spec(name) is not None]


def _django_apps() -> Any:
    apps: Any = importlib.import_module("django.apps").apps
    if not apps.ready:
        # Celery's worker does so, too: its app is imported before Django is set up.
        importlib.import_module("django").setup()
    return apps


def _names(given: Any) -> Iterable[str]:
    return [given] if isinstance(given, str) else given or ()


_began: set[int] = set()
"""The process that was told to have begun; a fork of it has not."""


def began(app: Any) -> None:
    """A worker of this process begins: sends `worker_process_init` and what belongs to it, once."""
    if os.getpid() in _began:
        return
    _began.clear()
    _began.add(os.getpid())
    if signals.setup_logging.receivers:
        signals.setup_logging.send(app, loglevel=logging.INFO, logfile=None, format="", colorize=False)
        _enable_own_loggers()
    signals.worker_init.send(app)
    signals.worker_process_init.send(app)
    signals.worker_ready.send(app)


def after_close(app: Any) -> None:
    """The app is closed: if a worker began here, it has ended."""
    if os.getpid() not in _began:
        return
    _began.clear()
    signals.worker_shutting_down.send(socket.gethostname(), sig="", how="warm", exitcode=0)
    signals.worker_process_shutdown.send(app, pid=os.getpid(), exitcode=0)
    signals.worker_shutdown.send(app)


def _enable_own_loggers() -> None:
    """`dictConfig` turns off all loggers that it does not name, unless it is told not to."""
    for name in list(logging.root.manager.loggerDict):
        if name == "tarry" or name.startswith("tarry."):
            logging.getLogger(name).disabled = False
