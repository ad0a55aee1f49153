"""`[master] watch = true`: a child that scans the files of the app and the configuration, and reports changes.

The source files of an app, and whether they have changed, by their times and sizes.

They are scanned from time to time; no kernel notifications are used.
"""

import contextlib
import logging
import os
import sys
import sysconfig
import time
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import ModuleType

import tarry
from tarry.config.config import FILES, Config
from tarry.errors import TarryError
from tarry.platform import resident_bytes
from tarry.process import title
from tarry.process.loading import open_app
from tarry.runtime.role import WATCHER, ChildContext

MAX_FILES = 5000
"""Files that are watched; changes of others are not seen."""
MAX_ENTRIES = 50_000
"""Directory entries of all kinds that one scan reads."""
_NO_CODE = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages"})
_PYTHONS = tuple(
    os.path.join(path, "") for path in {*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))}
)
_OURS = os.path.join(os.path.dirname(tarry.__file__), "")

FileTimes = dict[str, tuple[int, int]]
"""By path: the time of the last change, in nanoseconds since the epoch, and the size."""


class SourceFiles:
    """The files `named`, all Python files below `home`, and those of and beside the loaded modules. Python's own files,
    installed packages and tarry are left out."""

    def __init__(self, named: Collection[Path], home: Path, modules: Mapping[str, ModuleType] = sys.modules) -> None:
        self._named = [str(path) for path in named]
        self._home, self._modules = str(home), modules
        self.is_truncated = False
        """True: there are more than MAX_FILES."""

    def scan(self) -> FileTimes:
        """The files as they are now; missing ones are left out."""
        # A scan works on every file system, also on network and container mounts, and needs no library.
        seen: FileTimes = {}
        modules, packages = _module_files(self._modules)
        for path in (*self._named, *modules):
            _record_times(seen, path)
        beside = {os.path.dirname(path) for path in modules}
        for path in islice(_walk({self._home, *packages}, beside), MAX_FILES):
            if len(seen) >= MAX_FILES:
                break
            _record_times(seen, path)
        self.is_truncated = len(seen) >= MAX_FILES
        return seen


def changed_paths(before: FileTimes, now: FileTimes) -> list[str]:
    """The paths that were added, removed or changed."""
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def changed_between(seen: FileTimes, since: int, until: int) -> list[str]:
    """The paths that were changed between these two times, in nanoseconds since the epoch."""
    return sorted(path for path, (time, _) in seen.items() if since <= time <= until)


def _record_times(seen: FileTimes, path: str) -> None:
    try:
        found = os.stat(path)
    except OSError:
        return
    seen[path] = (found.st_mtime_ns, found.st_size)


def _module_files(modules: Mapping[str, ModuleType]) -> tuple[set[str], set[str]]:
    """The files of the app's modules, and the folders of its packages."""
    files: set[str] = set()
    packages: set[str] = set()
    # A copy, since an import in another thread changes the mapping.
    for name, module in list(modules.items()):
        if name != "__main__" and (path := _file_of(module)) is not None:
            files.add(path)
            if "." in name or hasattr(module, "__path__"):
                packages.add(os.path.dirname(path))
    return files, packages


def _file_of(module: ModuleType | None) -> str | None:
    path = getattr(module, "__file__", None)
    # Namespace packages have no file.
    if not isinstance(path, str) or not os.path.isabs(path) or path.startswith((_OURS, *_PYTHONS)):
        return None
    return None if _NO_CODE & set(path.split(os.sep)) else path


def _walk(deep: Collection[str], flat: Collection[str]) -> Iterator[str]:
    """The Python files in these folders; for `deep` also in those below, without hidden folders and virtual
    environments."""
    folders, done, left = [*sorted(flat), *sorted(deep, reverse=True)], set[str](), MAX_ENTRIES
    while folders and left > 0:
        folder = folders.pop()
        if folder in done:
            continue
        done.add(folder)
        entries = _entries(folder)
        left -= len(entries)
        if any(entry.name == "pyvenv.cfg" for entry in entries):
            continue
        yield from (entry.path for entry in entries if entry.name.endswith(".py"))
        if folder not in flat or folder in deep:
            folders += [entry.path for entry in reversed(entries) if _may_have_code(entry)]


def _entries(folder: str) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            # In a fixed order: if there are too many files, each scan sees the same ones.
            return sorted(islice(entries, MAX_ENTRIES), key=lambda entry: entry.name)
    except OSError:
        return []


def _may_have_code(entry: "os.DirEntry[str]") -> bool:
    try:
        # A linked folder may lead into a circle.
        return entry.name not in _NO_CODE and not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


# Seconds.
LOOK_EVERY = 0.5
# An editor may write a file twice, and git changes many files.
DEBOUNCE = 0.2
"""Seconds without a further change before one is reported."""
MAX_DELAY = 3.0
"""Seconds after which a change is reported in any case."""
_MAX_CPU = 0.1  # Part of a core that scanning may use.
_MAX_NAMES = 5

log = logging.getLogger("tarry.watcher")


class ChangeDebouncer:
    """Reports changes once files have stopped changing. Times are of the monotonic clock."""

    def __init__(self, first: FileTimes) -> None:
        self._reported = self._last = first
        self._since = 0.0

    @property
    def pause(self) -> float:
        """Seconds until the next scan."""
        return DEBOUNCE if self._last != self._reported else LOOK_EVERY

    def update(self, seen: FileTimes, now: float) -> list[str]:
        """The paths that changed since the last report; none while files go on changing."""
        moving, self._last = seen != self._last, seen
        if seen == self._reported:
            self._since = 0.0
            return []
        self._since = self._since or now
        if moving and now - self._since < MAX_DELAY:
            return []
        paths = changed_paths(self._reported, seen)
        self._reported, self._since = seen, 0.0
        return paths


def run_watcher(config: Config, app_name: str | None, since: int, child: ChildContext) -> int:
    """Runs the watcher. It reports changes after `since`, in nanoseconds since the epoch."""
    # The other processes may have started before such a change.
    title.show(WATCHER)
    sys.dont_write_bytecode = True
    # Other processes report the error; this one must see when it is repaired.
    with contextlib.suppress(TarryError):
        open_app(app_name, config)
    sources = SourceFiles(_config_files(config), config.directory)
    seen = sources.scan()
    early = changed_between(seen, since, time.time_ns())
    # Without the early ones, so that the next scan finds them changed.
    changes = ChangeDebouncer({path: fact for path, fact in seen.items() if path not in early})
    if sources.is_truncated:
        log.warning("there are more than %d Python files here: changes of the others are not seen", MAX_FILES)
    child.report_ready()
    pause = DEBOUNCE if early else LOOK_EVERY
    while _sleep(child, pause):
        began = time.monotonic()
        if paths := changes.update(sources.scan(), began):
            child.send({"changed": _format_paths(paths, config.directory)})
        child.slot.beat(resident_bytes())
        pause = max(changes.pause, (time.monotonic() - began) / _MAX_CPU)
    return 0


def _sleep(child: ChildContext, seconds: float) -> bool:
    """False: the process must end."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        child.sleep(left)
        # Shows whether the master is gone.
        child.receive()
        if child.should_exit():
            return False
    return True


def _config_files(config: Config) -> list[Path]:
    """The configuration file; without one, the files that would be read as such."""
    return [config.file] if config.file else [config.directory / name for name in FILES]


def _format_paths(paths: list[str], home: Path) -> str:
    """`app.py, shop/mail.py and 3 more`."""
    names = [os.path.relpath(path, home) if path.startswith(f"{home}/") else path for path in paths]
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
