"""`Celery(...)`: a tarry App whose tasks are made and called as Celery's are."""

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tarry.app import App
from tarry.client.client import Client
from tarry.client.task import Task as NativeTask
from tarry.compat.celery import canvas
from tarry.compat.celery.apps import add_app, share
from tarry.compat.celery.attempt import ExceptionInfo, make_function
from tarry.compat.celery.calling import Sending, send_by_name, zone_of
from tarry.compat.celery.differences import CeleryNotSupported, differs
from tarry.compat.celery.result import AsyncResult, Control
from tarry.compat.celery.schedules import as_cron
from tarry.compat.celery.settings import CelerySettings
from tarry.compat.celery.task import CeleryTask
from tarry.compat.celery.task_settings import apply_settings, limits_of
from tarry.compat.celery.values import from_json
from tarry.config import Config
from tarry.keeper.chores import Keeper
from tarry.model.retry import Retry
from tarry.model.schedule import schedules
from tarry.store.base import Store
from tarry.tasks.definition import full_name
from tarry.tasks.running import CurrentJob

ONLY_WHEN_ASKED = Retry(None, only=("tarry.compat.celery",))
"""The rule of all tasks: what fails is tried again only if the task asks for it, as often as it does."""


class Celery(App):
    """An app. `broker`, `backend` and settings of Celery's that have no part here warn once, with what to do instead.

    store: as that of App; default: TARRY_STORE, tarry.toml, else a file in the working directory.
    """

    Task: Any = CeleryTask
    AsyncResult = AsyncResult

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
        super().__init__(store)
        self.main = main
        self._is_current = set_as_current
        self._celery_tasks: dict[str, CeleryTask] = {}
        self._discover: list[Callable[[], Iterable[str]]] = []
        self._is_applied = False
        self.conf = CelerySettings(self._settings_changed)
        self.control = Control(self)
        self.Task = task_cls or CeleryTask
        given = {"broker_url": broker, "result_backend": backend, "include": tuple(include) or None}
        options = {name: value for name, value in settings.items() if name in _SETTINGS_BY_ARGUMENT or "_" in name}
        for name in settings.keys() - options.keys():
            if settings[name] is not None:
                differs(f"Celery({name}=...) has no effect with tarry")
        self.conf.update({name: value for name, value in {**given, **options}.items() if value is not None})
        if config_source is not None:
            self.config_from_object(config_source)
        self.native_task(name=canvas.COLLECT)(canvas_results)
        add_app(self, set_as_current)

    # Settings and modules

    def config_from_object(self, source: Any, silent: bool = False, force: bool = False, namespace: str = "") -> None:
        """Settings of a module by name, of an object or a dict. namespace: only names that begin with it count."""
        self.conf.load_later(source, namespace)
        self._settings_changed()

    def autodiscover_tasks(self, packages: Any = None, related_name: str | None = "tasks", force: bool = False) -> None:
        """Imports `PACKAGE.tasks` of these packages when a worker starts; without packages, of Django's apps."""
        self._discover.append(lambda: _related(packages, related_name))
        if force:
            self.import_modules()

    def import_modules(self) -> None:
        """Imports the modules of tasks: those of `include`, `imports` and of `autodiscover_tasks`."""
        for name in (*_names(self.conf.include), *_names(self.conf.imports)):
            importlib.import_module(name)
        while self._discover:
            for name in self._discover.pop(0)():
                importlib.import_module(name)

    def configure(self, config: Config) -> None:
        super().configure(config)
        # `tarry start` and other commands call this; a program that only enqueues imports what it needs itself.
        self.import_modules()

    def connection(self) -> tuple[Store, bool]:
        self.import_modules()
        return super().connection()

    def keeper(self, store: Store, *args: Any, **kwargs: Any) -> Keeper:
        self._apply_settings()
        return super().keeper(store, *args, **kwargs)

    def _connect(self) -> Client:
        self._apply_settings()
        return super()._connect()

    def _settings_changed(self) -> None:
        if self._is_applied:
            self._apply_settings(again=True)

    def _apply_settings(self, again: bool = False) -> None:
        """Gives the tasks what the settings say of them: queue, limits, schedules."""
        if self._is_applied and not again:
            return
        self._is_applied = True
        for task in list(self._celery_tasks.values()):
            apply_settings(self, task, self.tasks[task.name])
            self._set_schedules(self.tasks[task.name])
        self._known_rules.clear()

    def _set_schedules(self, native: NativeTask[Any, Any]) -> None:
        lines = {name: line for name, line in self.conf.beat_schedule.items() if line["task"] == native.name}
        crons = [
            as_cron(name, line["schedule"], line.get("args"), line.get("kwargs"), zone_of(self))
            for name, line in lines.items()
        ]
        for name, line in lines.items():
            if line.get("options"):
                differs(f"beat_schedule[{name!r}]: options have no effect: set them on the task or in task_routes")
        native.schedules = schedules(native.name, crons or None, None, None, native.codec.encode)

    # Tasks

    # tarry's own decorator, for tasks that are written anew.
    native_task = App.task

    def task(self, *fn: Any, **options: Any) -> Any:
        """`@app.task` or `@app.task(bind=True, max_retries=5)`, as Celery's; see docs/from/celery.md."""
        if fn:
            return self.adopt(make_task(fn[0], {}, self.Task))
        return lambda function: self.adopt(make_task(function, options, self.Task))

    def register_task(self, task: Any, **options: Any) -> CeleryTask:
        """Adds an instance of a Task class that has a `run`, or a class."""
        instance: CeleryTask = task() if isinstance(task, type) else task
        if not instance.name:
            instance.name = f"{type(instance).__module__}.{type(instance).__qualname__}"
        return self.adopt(instance)

    def adopt(self, task: CeleryTask) -> CeleryTask:
        """Makes it a task of this app."""
        function = make_function(task, task.__dict__.get("__wrapped__", task.run), task._bind)
        native = self._add_task(function, {"name": task.name, "retry": ONLY_WHEN_ASKED, **limits_of(self, task)})
        vars(native).update(delay=task.delay, apply_async=task.apply_async, s=task.s, si=task.si)
        self._celery_tasks[task.name] = task
        if task._app is None or self._is_current:
            task._app = self
        _add_hooks(task, native)
        if self._is_applied:
            apply_settings(self, task, native)
            self._set_schedules(native)
        return task

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
        if name in self._celery_tasks:
            return self._celery_tasks[name].apply_async(args, kwargs, task_id, **options)
        return send_by_name(self, name, Sending.of(args, kwargs, task_id, options))

    def signature(self, task: Any, *args: Any, **kwargs: Any) -> canvas.Signature:
        """A call of the task of that name."""
        return canvas.signature(task, *args, **{**kwargs, "app": self})

    def set_current(self) -> None:
        """Makes it the app of `shared_task` calls and of AsyncResult."""
        self._is_current = True
        add_app(self, True)

    def worker_main(self, argv: Any = None) -> None:
        """Refused: workers are those of `tarry start`."""
        raise CeleryNotSupported("worker_main: run `tarry -a module:app start`, or app.run() for one process")

    start = worker_main

    @property
    def current_task(self) -> Any:
        """The task that runs this code; None: none."""
        from tarry.tasks.running import current  # noqa: PLC0415

        running = current.get()
        return None if running is None else self._celery_tasks.get(running.job.task)


_SETTINGS_BY_ARGUMENT = frozenset({"timezone", "imports"})


def make_task(fn: Callable[..., Any], options: Mapping[str, Any], base: Any) -> CeleryTask:
    """A task of that function, which no app has yet."""
    settings = dict(options)
    kind = settings.pop("base", None) or base
    name, bind = settings.pop("name", None) or full_name(fn), bool(settings.pop("bind", False))
    task: CeleryTask = kind()
    task.define(fn, name, bind, settings)
    return task


def shared_task(*fn: Any, **options: Any) -> Any:
    """`@shared_task` or `@shared_task(bind=True)`: a task of every app, with the options of `@app.task`."""
    if fn:
        return share(make_task(fn[0], {}, CeleryTask))
    return lambda function: share(make_task(function, options, CeleryTask))


def canvas_results(results: list[Any]) -> list[Any]:
    """Gives back the results of the calls that it waits for, as one list."""
    return results


def _add_hooks(task: CeleryTask, native: NativeTask[Any, Any]) -> None:
    kind = type(task)
    # A hook costs each run something: only what a class overrides is called.
    if kind.on_success is not CeleryTask.on_success or kind.after_return is not CeleryTask.after_return:
        native.on_success(lambda job, value: _succeeded(task, job, value))
    if kind.on_failure is not CeleryTask.on_failure or kind.after_return is not CeleryTask.after_return:
        native.on_dead(lambda job, error: _failed(task, job, error))


def _succeeded(task: CeleryTask, job: CurrentJob, value: Any) -> None:
    args, kwargs, value = from_json(tuple(job.args)), from_json(dict(job.kwargs)), from_json(value)
    task.on_success(value, job.id, args, kwargs)
    task.after_return("SUCCESS", value, job.id, args, kwargs, None)


def _failed(task: CeleryTask, job: CurrentJob, error: BaseException) -> None:
    args, kwargs, info = from_json(tuple(job.args)), from_json(dict(job.kwargs)), ExceptionInfo(error)
    task.on_failure(error, job.id, args, kwargs, info)
    task.after_return("FAILURE", error, job.id, args, kwargs, info)


def _names(given: Any) -> Iterable[str]:
    return [given] if isinstance(given, str) else given or ()


def _related(packages: Any, related_name: str | None) -> list[str]:
    found = packages() if callable(packages) else packages
    if found is None:
        # Without packages, the app is one of Django's.
        found = [config.name for config in importlib.import_module("django.apps").apps.get_app_configs()]
    names = [f"{package}.{related_name}" if related_name else package for package in found]
    return [name for name in names if importlib.util.find_spec(name) is not None]
