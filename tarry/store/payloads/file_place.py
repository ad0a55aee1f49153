"""Payloads as files in a directory that all hosts of the app share."""

import contextlib
import errno
import os
import stat
from bisect import bisect_right
from collections.abc import Collection
from itertools import islice
from pathlib import Path

from tarry import files
from tarry.errors import ConfigError, PayloadUnavailable
from tarry.store.payloads.place import FILE, HOW, PayloadPlace, StoredObject

_FOLDER = 0o700
_NOT_THERE = (FileNotFoundError, NotADirectoryError)
_NO_FILE = (errno.ELOOP, errno.ENXIO)
"""Of a link of a stranger or to itself, and of a socket."""


class FilePlace(PayloadPlace):
    """url: `file:///srv/tarry`, the path of a directory that is there."""

    def __init__(self, url: str) -> None:
        path = Path(url.removeprefix(FILE.removesuffix("/")))
        # A path with `..` could lead elsewhere from one host to the next.
        if path == Path("/") or ".." in path.parts or "\0" in url or not url.startswith(FILE):
            raise ConfigError(f"[payloads] to: {url[:100]!r} is not the path of a directory: {HOW}")
        self.url, self._root = url, path
        self._synced: set[Path] = set()
        """Folders whose own names are on the disk, as this process knows."""

    def write(self, name: str, data: bytes) -> None:
        path = self._root / name
        try:
            self._check_root()
            folders = path.parents[: len(Path(name).parts) - 1]
            files.make_directory(path.parent, _FOLDER)
            files.replace(path, data)
            # Names are in the directories: without this, a power cut could take the name away. Another process that
            # made a folder may not have come to that yet.
            for folder in (path.parent, *(one.parent for one in folders if one not in self._synced)):
                _sync_folder(folder)
            self._synced.update(folders)
        except OSError as error:
            raise self.unavailable("cannot be written", _cause(error)) from None

    def renew(self, name: str, data: bytes) -> None:
        try:
            self.write(name, data)
        except PayloadUnavailable:
            # A full disk gets room by what is deleted, and that begins with this.
            if not _overwrite(self._root / name, data):
                raise

    def read(self, name: str, most: int) -> bytes | None:
        try:
            with open(_open_file(self._root / name), "rb") as file:
                return file.read(most)
        except _NOT_THERE as error:
            # Not there for good only if what was written beside it is there: a disk may not be mounted.
            if (self._root / name).parents[1].is_dir():
                return None
            raise self.unavailable("cannot be read", f"{_cause(error)}; is it mounted here?") from None
        except OSError as error:
            raise self.unavailable("cannot be read", _cause(error)) from None

    def delete(self, names: Collection[str]) -> None:
        errors: list[OSError] = []
        for name in names:
            try:
                (self._root / name).unlink()
            except _NOT_THERE:
                pass
            except OSError as error:
                # One that stays must not keep the others.
                errors.append(error)
        if errors:
            raise self.unavailable("cannot be changed", _cause(errors[0]))

    def page(self, namespace: str, after: str, limit: int) -> list[StoredObject]:
        found: list[StoredObject] = []
        try:
            folders = sorted(
                one.name for one in os.scandir(self._root / namespace) if one.is_dir(follow_symlinks=False)
            )
            for folder in folders:
                # The folder of `after`, and those behind it.
                if f"{namespace}/{folder}/\x7f" > after and len(found) < limit:
                    found += self._objects(f"{namespace}/{folder}", after, limit - len(found))
        except OSError as error:
            raise self.unavailable("cannot be read", _cause(error)) from None
        return found

    def time_of(self, name: str) -> float:
        try:
            return (self._root / name).stat().st_mtime
        except OSError as error:
            raise self.unavailable("cannot be read", _cause(error)) from None

    def _objects(self, folder: str, after: str, limit: int) -> list[StoredObject]:
        names = sorted(f"{folder}/{name}" for name in os.listdir(self._root / folder))
        found: list[StoredObject] = []
        for name in islice(names, bisect_right(names, after), None):
            # Deleted just now, perhaps.
            with contextlib.suppress(FileNotFoundError):
                status = (self._root / name).lstat()
                if not stat.S_ISDIR(status.st_mode):
                    found.append(StoredObject(name, status.st_mtime))
            if len(found) == limit:
                break
        return found

    def _check_root(self) -> None:
        if not self._root.is_dir():
            # Not made here: where a disk is not mounted, that would write below its mount point.
            raise FileNotFoundError(2, f"{self._root} is no directory: make it on every host, with mode 0700")


def _overwrite(path: Path, data: bytes) -> bool:
    """Whether the file there got these bytes, in the room that it has."""
    with contextlib.suppress(OSError), open(_open_file(path, os.O_WRONLY), "wb", buffering=0) as file:
        # In one call, and nothing behind it: whoever is killed here leaves the one or the other.
        if os.fstat(file.fileno()).st_size == len(data):
            file.write(data)
            os.fsync(file.fileno())
            return True
    return False


def _open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """FileNotFoundError also if what is there is no file."""
    try:
        # Without waiting: nobody may ever write to a pipe.
        descriptor = files.open_private(path, flags | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise FileNotFoundError(errno.ENOENT, "no file", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "no file", str(path))
    return descriptor


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cause(error: OSError) -> str:
    why = error.strerror or type(error).__name__
    # Such as a folder that another user has made: of 256 just one.
    return f"{why}: {error.filename}" if error.filename else why
