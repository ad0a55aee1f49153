"""`[master] watch = true`: a child that scans the files of the app and the configuration, and reports changes."""

import contextlib
import logging
import os
import sys
import time
from pathlib import Path

from tarry.config.config import FILES, Config
from tarry.errors import TarryError
from tarry.process import title
from tarry.process.loading import open_app
from tarry.process.source_files import MAX_FILES, FileTimes, SourceFiles, changed_between, changed_paths
from tarry.runtime.role import WATCHER, ChildContext
from tarry.worker.worker import resident_bytes

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
