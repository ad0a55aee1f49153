"""The source files of an app, and whether they have changed, by their times and sizes.

They are scanned from time to time; no kernel notifications are used.
"""

import os
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import ModuleType

import tarry

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
