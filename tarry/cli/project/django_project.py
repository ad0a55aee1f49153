"""`tarry init --django`: adds tarry to a Django project that is there already. Overwrites nothing."""

import importlib.util
import os
import re
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from tarry.errors import TarryError

_NAMES_SETTINGS = re.compile(r"""DJANGO_SETTINGS_MODULE["']\s*,\s*["']([\w.]+)["']""")
_SETS_APPS = re.compile(r"^INSTALLED_APPS\b", re.MULTILINE)
_SETS_TASKS = re.compile(r"^TASKS\b", re.MULTILINE)
_WHY = "# Calls of tasks are jobs of tarry, kept in the default database; `python manage.py tarry start` runs them."
# Not a file of the starters: those are modules of tarry, and only tarry.django imports Django.
TASKS = '''"""Tasks: functions whose calls are jobs. `python manage.py tarry start` runs them."""

from tarry.django import task


@task(retries=5, timeout="30s")
def hello(name: str) -> str:
    """Called by a worker: hello.enqueue("Ann") puts a job."""
    return f"Hello, {name}!"
'''


class DjangoProject(NamedTuple):
    """A project of Django's. needs_backport: its Django has no tasks of its own; has_backport: django-tasks is here."""

    settings_module: str
    settings_file: Path
    needs_backport: bool
    has_backport: bool

    @property
    def tasks_file(self) -> Path | None:
        """Where the project's own tasks are; None: its settings are in no package."""
        package, dot, _ = self.settings_module.partition(".")
        return Path(package, "tasks.py") if dot else None


class DjangoFiles(Struct, frozen=True):
    """What `tarry init --django` did and what is left to do.

    written: new files. appended: files that got lines at their end. kept: files that are as they were. to_add: lines
    that the user puts into `settings` by hand; empty: nothing is missing there. next: what to type then, a line each.
    """

    written: list[str]
    appended: list[str]
    kept: list[str]
    settings: str
    to_add: str
    next: list[str]


def find_project() -> DjangoProject:
    """The project in the working directory; TarryError: there is none, or Django is not installed."""
    if importlib.util.find_spec("django") is None:
        raise TarryError("Django is not installed where tarry is: pip install django tarry, in one environment")
    manage = Path("manage.py")
    if not manage.is_file():
        raise TarryError(
            "there is no manage.py here: run it in the folder of a Django project, or make one first:"
            " django-admin startproject shop ."
        )
    module = os.environ.get("DJANGO_SETTINGS_MODULE") or _settings_of(manage.read_text(encoding="utf-8"))
    # The order of the two: `find_spec` of a module imports its package.
    needs_backport = importlib.util.find_spec("django.tasks") is None
    has_backport = importlib.util.find_spec("django_tasks") is not None
    return DjangoProject(module, _file_of(module), needs_backport, has_backport)


def add_to_project(project: DjangoProject, files: dict[Path, str]) -> DjangoFiles:
    """Writes those files that are not there yet, and appends to the settings if it is clear what to."""
    written = {path: text for path, text in files.items() if not path.exists()}
    for path, text in written.items():
        write_new(path, text)
    to_add = _settings_lines(project)
    appended = [str(project.settings_file)] if to_add and _is_plain(project) else []
    if appended:
        _append(project.settings_file, to_add)
    return DjangoFiles(
        written=[str(path) for path in written],
        appended=appended,
        kept=[str(path) for path in files if path not in written],
        settings=str(project.settings_file),
        to_add="" if appended else to_add,
        next=_next_steps(project, is_set=bool(appended or not to_add), is_new=project.tasks_file in written),
    )


def write_new(path: Path, content: str) -> None:
    """Writes a file; TarryError: one may not."""
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise _cannot_write(path, error) from None


def _append(path: Path, lines: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n\n{lines}\n")
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: Path, error: OSError) -> TarryError:
    return TarryError(f"{path.absolute()} cannot be written ({error.strerror}): run it where you may write")


def _settings_of(manage: str) -> str:
    found = _NAMES_SETTINGS.search(manage)
    if found is None:
        raise TarryError(
            "manage.py names no settings: set DJANGO_SETTINGS_MODULE, such as shop.settings, and try again"
        )
    return found[1]


def _file_of(module: str) -> Path:
    place = Path(*module.split("."))
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if file.is_file():
            return file
    raise TarryError(f"the settings {module} are no file here: run it in the folder of manage.py")


def _settings_lines(project: DjangoProject) -> str:
    """What the settings lack; empty: nothing."""
    content = project.settings_file.read_text(encoding="utf-8")
    quoted = [f'"{name}"' for name in _apps_of(project) if not re.search(rf"""["']{name}["']""", content)]
    lines = [f"INSTALLED_APPS = [*INSTALLED_APPS, {', '.join(quoted)}]"] if quoted else []
    if "tarry.django.Backend" not in content:
        lines.append('TASKS = {"default": {"BACKEND": "tarry.django.Backend", "QUEUES": ["default"]}}')
    return "\n".join([_WHY, *lines]) if lines else ""


def _apps_of(project: DjangoProject) -> list[str]:
    return ["django_tasks", "tarry.django"] if project.needs_backport else ["tarry.django"]


def _is_plain(project: DjangoProject) -> bool:
    """Whether lines at the end of the settings do it: they have the apps themselves, and no other TASKS."""
    content = project.settings_file.read_text(encoding="utf-8")
    return bool(_SETS_APPS.search(content)) and not _SETS_TASKS.search(content)


def _next_steps(project: DjangoProject, is_set: bool, is_new: bool) -> list[str]:
    """is_new: the project's tasks.py is ours, with a task to try."""
    package = project.settings_module.partition(".")[0]
    enqueue = f"from {package}.tasks import hello; print(hello.enqueue('Ann').id)"
    return [
        *(["pip install django-tasks"] if project.needs_backport and not project.has_backport else []),
        *([] if is_set else [f"add the lines above to {project.settings_file}"]),
        "python manage.py migrate",
        "python manage.py tarry start -d",
        *([f'python manage.py shell -c "{enqueue}"'] if is_new else []),
        "python manage.py tarry jobs",
    ]
