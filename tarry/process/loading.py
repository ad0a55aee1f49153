"""Loads the configuration, the app and the client that the options `-c` and `-a` name."""

import argparse
import contextlib
import importlib
import re
import sys
from collections.abc import Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tarry.config.config import Config, as_current, load, pid_file
from tarry.errors import AppError, StoreError
from tarry.runtime.pidfile import holder
from tarry.store.shared.creation import only_existing
from tarry.terminal import print_line

# Imported for types only: commands such as `tarry status` need no app, and loading it takes time.
if TYPE_CHECKING:
    from tarry.app import App
    from tarry.client.client import Client
    from tarry.client.tasks.task import Task
    from tarry.push.http.address_guard import AddressGuard


_AN_APP = re.compile(r"(\w{1,100}) ?(?:: ?[\w.]{1,100} ?)?= ?(?:tarry\.)?App\(")
_MOST_FILES, _MOST_LINES, _MOST_APPS = 100, 10_000, 5
"""How far to look for apps."""
NO_APP = "no app is named: give -a module:app, or set app in tarry.toml (`tarry init` writes one)"


class CommandContext:
    """What a command works with; each part is loaded at its first use."""

    def __init__(self, config_file: str | None, app: str | None, directory: Path | None = None) -> None:
        self._file, self._app, self._directory = config_file, app, directory

    @classmethod
    def of(cls, args: argparse.Namespace, directory: Path | None = None) -> "CommandContext":
        """From parsed arguments. Settings and modules are found in the working directory, or in `directory`."""
        # A daemon has left the working directory, and gives the one that it was started in.
        here = directory or Path.cwd()
        if str(here) not in sys.path:
            sys.path.insert(0, str(here))
        return cls(args.config, args.app, here)

    @cached_property
    def config(self) -> Config:
        """The settings; ConfigError."""
        return load(Path(self._file) if self._file else None, directory=self._directory)

    @cached_property
    def pid_file(self) -> Path:
        """The master's pid file. If other settings are wrong but a master runs there, only prints the error on stderr.
        ConfigError."""
        path, trouble = pid_file(Path(self._file) if self._file else None, directory=self._directory)
        if trouble is not None:
            # A wrong setting must not keep anybody from stopping a master that runs.
            if holder(path) is None:
                raise trouble
            print_line(f"tarry: {trouble}", file=sys.stderr)
        return path

    @property
    def app_name(self) -> str | None:
        """`module:app` from the option or the settings; None: none is named."""
        return self._app or self.config.app

    @cached_property
    def app(self) -> "App":
        """The imported app; AppError says where an error is."""
        self.require_work()
        return self.home

    def describe_work(self) -> str:
        """What a master's workers run here, as text. Without an app or tasks, some may be registered later."""
        known = self.app_name or ("HTTP tasks" if self.config.tasks else "")
        return known or "no app and no [tasks]: HTTP tasks that `tarry tasks add` registers"

    def require_start(self) -> None:
        """AppError: a master would have nothing to do: no app, no HTTP task, also none in the store, and no door."""
        server = self.config.server
        if self.app_name or self.config.tasks or server.http or server.beanstalk or self._has_stored_tasks():
            return
        found = find_apps(self._directory or Path.cwd())
        start = f"tarry -a {found[0]} start" if found else "tarry -a module:app start"
        others = f" (or {', '.join(found[1:])})" if found[1:] else ""
        raise AppError(
            "nothing to run here: no app is named, and there are no HTTP tasks and no [server]. Write"
            f" `{start}`{others}, or set app in tarry.toml (`tarry init` writes one)"
        )

    def _has_stored_tasks(self) -> bool:
        """Whether HTTP tasks are registered in the store; True also if the store cannot be asked now."""
        try:
            with only_existing():
                self.home.http.sync(self.client.store)
        except StoreError:
            # A master may begin before its store does.
            return True
        finally:
            self.home.close()
        return bool(self.home.http.endpoints)

    def require_work(self) -> str:
        """What workers run here, as text; AppError: nothing is named."""
        if not self.app_name and not self.config.tasks:
            raise AppError(NO_APP)
        return self.app_name or "HTTP tasks"

    @cached_property
    def home(self) -> "App":
        """The app; if none is named, an empty one with the same settings, which knows HTTP tasks only."""
        return open_app(self.app_name, self.config)

    @property
    def client(self) -> "Client":
        """A client of the app's store or the configured one."""
        return self.home.client

    @property
    def guard(self) -> "AddressGuard":
        """What HTTP tasks may reach."""
        from tarry.push.http.address_guard import AddressGuard  # noqa: PLC0415

        return AddressGuard(self.config.push.allow)

    def known_tasks(self) -> "Mapping[str, Task[Any, Any]]":
        """The app's tasks and the current HTTP tasks."""
        self.home.http.load()
        # While the store is away, the tasks of the app and of the settings are known all the same.
        with contextlib.suppress(StoreError):
            self.home.http.sync(self.client.store)
        return self.home.tasks


def find_apps(directory: Path) -> list[str]:
    """The Apps of the modules in this directory, as `module:name`: where a line such as `app = App()` stands."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        for file in islice(sorted(directory.glob("*.py")), _MOST_FILES):
            with contextlib.suppress(OSError), file.open(encoding="utf-8", errors="replace") as lines:
                names = map(_AN_APP.match, islice(lines, _MOST_LINES))
                found += [f"{file.stem}:{match[1]}" for match in names if match]
    return found[:_MOST_APPS]


def open_app(name: str | None, config: Config) -> "App":
    """The app with these settings; without a name, an empty one. AppError."""
    from tarry.app import App  # noqa: PLC0415

    # A daemon has left the project's directory, and a module may use its App while it is imported.
    with as_current(config):
        app = import_app(name, config.directory) if name else App()
    app.configure(config)
    return app


def import_app(name: str, directory: Path) -> "App":
    """The App at `module:attribute`, looked for in `directory` first."""
    from tarry.app import App  # noqa: PLC0415

    module_name, _, attribute = name.partition(":")
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    try:
        if "/" in module_name:
            raise ModuleNotFoundError(name=module_name)
        module = importlib.import_module(module_name)
    # A module may call sys.exit when it is imported.
    except (Exception, SystemExit) as error:
        raise AppError(_import_error(name, module_name, error)) from error
    try:
        app = getattr(module, attribute or "app")
    except AttributeError:
        raise AppError(f"app {name}: {module_name} has no {attribute or 'app'}; {_way_out(module)}") from None
    if not isinstance(app, App):
        raise AppError(f"app {name} is {type(app).__name__}, not a tarry App; {_way_out(module)}")
    return app


def _way_out(module: ModuleType) -> str:
    from tarry.app import App  # noqa: PLC0415

    found = [name for name, value in vars(module).items() if isinstance(value, App)]
    return f"did you mean {module.__name__}:{found[0]}?" if found else "name its App, as module:app"


def _import_error(name: str, module: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and (module.endswith(".py") or "/" in module):
        path, _, attribute = name.partition(":")
        named = path.removesuffix(".py").strip("./").replace("/", ".")
        return f"app {name}: that is a file; name its module, as {named}:{attribute or 'app'}"
    if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]:
        return f"app {name}: there is no module {error.name} here; run this in the project's directory"
    import traceback  # noqa: PLC0415

    # The error is in the app's own code, or in what it imports: importlib's frames do not help to find it.
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    if isinstance(error, SyntaxError):
        where = f"{error.filename}:{error.lineno}"
    else:
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else module
    return f"app {name} cannot be imported: {type(error).__name__}: {error} ({where})"
