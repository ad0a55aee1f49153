"""The tarry App of a backend: one for each alias, whose tasks are found by their names."""

import functools
import importlib
import importlib.util
import inspect
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from django.apps import apps as installed
from django.conf import settings
from django.utils.module_loading import autodiscover_modules, module_has_submodule

from tarry.app import App
from tarry.client.enqueue_listener import EnqueueListener
from tarry.client.tasks.batch_task import task_class
from tarry.client.tasks.task import Task
from tarry.config.config import load
from tarry.django import compat, database, results, runs
from tarry.django.codec import DjangoCodec
from tarry.django.django_task import option, retry_rule_of
from tarry.errors import StoreError
from tarry.model.job import Job, State

log = logging.getLogger("tarry.django")

_lock = threading.Lock()
_apps: dict[tuple[int, str, str], "DjangoApp"] = {}


class DjangoApp(App):
    """An App whose tasks are the tasks of Django that its modules define."""

    def __init__(self, alias: str, options: Mapping[str, Any], sender: type) -> None:
        super().__init__(database.store_url(options), closures=True)
        self.alias, self.options = alias, options
        self.tasks: dict[str, Task[Any, Any]] = TaskTable(self._find_task)
        if (file := options.get("config")) is not None:
            self.configure(load(Path(file)))
        self._sender = sender
        runs.register(self, sender, self.result_of)

    def result_of(self, job: Job) -> Any:
        """The job as Django sees it: a TaskResult."""
        return results.result_of(self.alias, job, self.declared(job.task))

    def _enqueue_listener(self) -> EnqueueListener:
        return runs.CancelSignals(super()._enqueue_listener(), self._send_cancelled)

    def _send_cancelled(self, jobs: Sequence[Job]) -> None:
        try:
            now = self.client.fetch([job.id for job in jobs])
        except StoreError:
            # They are cancelled: that nobody could be told must not look like a cancel that failed.
            log.warning("no task_finished is sent for %d cancelled jobs: their store is away", len(jobs))
            return
        for job in now:
            if job is not None and job.state is State.CANCELLED:
                runs.send_cancelled(self._sender, self.result_of(job))

    def discover(self) -> None:
        """Imports the `tasks` modules of the installed apps and of the project's own package, and OPTIONS["imports"],
        and adds what they define, so that limits are known before the first job is."""
        autodiscover_modules("tasks")
        # A small project has its tasks beside its settings, in a package that is no app.
        own = [f"{package}.tasks" for package in _project_packages()]
        for name in (*filter(_exists, own), *self.options.get("imports", ())):
            importlib.import_module(name)
        for module in [module for name, module in list(sys.modules.items()) if self.may_import(name)]:
            for value in list(vars(module).values()):
                if isinstance(value, compat.Task) and value.func.__module__ == module.__name__:
                    self.tasks.get(value.module_path)

    def may_import(self, module: str) -> bool:
        """Whether a job may name a task of this module: one of the project, of an installed app or of
        OPTIONS["imports"]."""
        # A job comes from the store: its task must not have this process import whatever Python can.
        return any(module == one or module.startswith(f"{one}.") for one in self._packages())

    def declared(self, name: str) -> Any | None:
        """The task of Django's of this name, as its module has it; None: there is none, or the module is broken."""
        try:
            return find_django_task(name, self.may_import)
        except Exception:
            # A look at an old job must not fail because of what became of its module.
            return None

    def why_not(self, task: Any) -> str:
        """Why workers cannot find the task."""
        if not self.may_import(task.func.__module__):
            return (
                f"{task.module_path} is in no installed app, and workers import no other modules: add"
                f' {task.func.__module__!r} to OPTIONS["imports"] of TASKS[{self.alias!r}]'
            )
        return (
            f"workers look for {task.module_path}, and that is no task: write @task above the function, so that the"
            " task has the function's name"
        )

    def _packages(self) -> Iterable[str]:
        yield from (config.name for config in installed.get_app_configs())
        yield from self.options.get("imports", ())
        yield from _project_packages()

    def _find_task(self, name: str) -> Task[Any, Any] | None:
        found = find_django_task(name, self.may_import)
        return None if found is None else self._define(found)

    def _define(self, found: Any) -> Task[Any, Any]:
        fn = _runner(found)
        given = {
            "name": found.module_path, "queue": found.queue_name, "priority": int(found.priority),
            "retry": retry_rule_of(self._option(found, "retries"), self._option(found, "backoff")),
            "timeout": self._option(found, "timeout"), "expires": self._option(found, "expires"),
            "limit": option(found, "limit"),
        }  # fmt: skip
        made: Task[Any, Any] = task_class(fn, given)(fn, lambda: self.client, **given)
        made.codec = DjangoCodec(made.name, fn)
        self._around.attach(made)
        return made

    def _option(self, found: Any, name: str) -> Any:
        """An option of a task, else that of the backend's OPTIONS."""
        own = option(found, name)
        return self.options.get(name) if own is None else own


class TaskTable(dict[str, Task[Any, Any]]):
    """Tasks by name; one that is not there yet is looked for."""

    def __init__(self, find: Callable[[str], Task[Any, Any] | None]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, name: str) -> Task[Any, Any]:
        """The task that is found by the name; KeyError."""
        found = self._find(name)
        if found is None:
            raise KeyError(name)
        return self.setdefault(name, found)

    def get(self, name: str, default: Any = None) -> Any:
        """The task, which may be found only now; `default` if there is none."""
        try:
            return self[name]
        except KeyError:
            return default


def find_django_task(name: str, may_import: Callable[[str], bool]) -> Any | None:
    """The task of Django's at `module.function`; None: there is none, or it is something else, or `may_import` refuses
    the module. Errors of the module itself are raised."""
    module_name, _, attribute = name.rpartition(".")
    if not module_name or not may_import(module_name) or not _exists(module_name):
        return None
    found = getattr(importlib.import_module(module_name), attribute, None)
    return found if isinstance(found, compat.Task) and found.module_path == name else None


def get_app(alias: str, options: Mapping[str, Any], sender: type) -> DjangoApp:
    """The App of this backend in this process. It is made at the first use; it opens its store at its own first use.
    sender: the class of the backend, for signals."""
    # The URL too: Django's tests change the settings, and the names of its databases.
    key = (os.getpid(), alias, repr((database.store_url(options), sorted(options.items(), key=lambda item: item[0]))))
    with _lock:
        if (app := _apps.get(key)) is None:
            app = _apps[key] = DjangoApp(alias, options, sender)
        return app


def close_apps() -> None:
    """Closes the Apps of this process and forgets them."""
    with _lock:
        closed = [_apps.pop(key) for key in list(_apps)]
    for app in closed:
        app.close()


def _project_packages() -> set[str]:
    """The packages of the settings and of the URLs: usually one, the project's."""
    named = (getattr(settings, "SETTINGS_MODULE", None), getattr(settings, "ROOT_URLCONF", None))
    return {name.partition(".")[0] for name in named if name}


def _exists(module: str) -> bool:
    if module in sys.modules:
        return True
    package, _, last = module.rpartition(".")
    if not package:
        return importlib.util.find_spec(module) is not None
    return _exists(package) and module_has_submodule(importlib.import_module(package), last)


def _runner(task: Any) -> Callable[..., Any]:
    """What tarry calls for a job of this task: its function, with the context if it takes one."""
    fn = task.func
    if inspect.iscoroutinefunction(fn):

        async def arun(*args: Any, **kwargs: Any) -> Any:
            return await fn(*runs.context_of(task), *args, **kwargs)

        run: Callable[..., Any] = arun
    else:

        def run(*args: Any, **kwargs: Any) -> Any:
            return fn(*runs.context_of(task), *args, **kwargs)

    # Without `__wrapped__`: the arguments are plain JSON, whatever the annotations of the function say.
    functools.update_wrapper(run, fn, assigned=("__module__", "__name__", "__qualname__", "__doc__"), updated=())
    del run.__wrapped__  # type: ignore[attr-defined]
    return run


def _start_anew() -> None:
    global _lock
    # The parent may have held it at the fork.
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_start_anew)
