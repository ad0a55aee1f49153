"""`[master] watch = true`: a child that looks at the files of the app and the configuration, and says what changed."""

import contextlib
import logging
import os
import sys
import time
from pathlib import Path

from tarry.config import FILES, Config
from tarry.errors import TarryError
from tarry.process import title
from tarry.process.loading import opened
from tarry.process.source_files import MOST, Seen, Sources, changed, later
from tarry.runtime.role import WATCHER, Child
from tarry.worker.worker import memory

LOOK_EVERY = 0.5
SETTLED_AFTER = 0.2
"""Seconds without a further change, after which one is told: an editor writes several times, git changes many files."""
LATEST = 3.0
"""Seconds after which it is told all the same."""
_SHARE = 0.1
"""Of a core, that looking may take."""
_NAMED = 5

log = logging.getLogger("tarry.watcher")


class Changes:
    """Tells of changes once they have settled. Times are of the monotonic clock."""

    def __init__(self, told: Seen) -> None:
        self._told = self._last = told
        self._since = 0.0

    @property
    def pause(self) -> float:
        """Seconds until the next look is wanted."""
        return SETTLED_AFTER if self._last != self._told else LOOK_EVERY

    def look(self, seen: Seen, now: float) -> list[str]:
        """What has changed since it was told last; nothing as long as it goes on changing."""
        moving, self._last = seen != self._last, seen
        if seen == self._told:
            self._since = 0.0
            return []
        self._since = self._since or now
        if moving and now - self._since < LATEST:
            return []
        paths = changed(self._told, seen)
        self._told, self._since = seen, 0.0
        return paths


def watch(config: Config, app_name: str | None, since: int, child: Child) -> int:
    """The life of the watcher. What changed from `since` on, in nanoseconds since the epoch, was perhaps not yet there
    when the others began."""
    title.show(WATCHER)
    sys.dont_write_bytecode = True
    with contextlib.suppress(TarryError):  # the others say so; here it is to be seen when it is mended
        opened(app_name, config)
    sources = Sources(_named(config), config.directory)
    seen = sources.look()
    early = later(seen, since, time.time_ns())
    changes = Changes({path: fact for path, fact in seen.items() if path not in early})
    if sources.bounded:
        log.warning("there are more than %d Python files here: changes of the others are not seen", MOST)
    child.ready()
    pause = SETTLED_AFTER if early else LOOK_EVERY
    while _slept(child, pause):
        began = time.monotonic()
        if paths := changes.look(sources.look(), began):
            child.answer({"changed": _shown(paths, config.directory)})
        child.slot.beat(memory())
        pause = max(changes.pause, (time.monotonic() - began) / _SHARE)
    return 0


def _slept(child: Child, seconds: float) -> bool:
    """False: the end has come."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        child.sleep(left)
        child.lines()
        if child.over():
            return False
    return True


def _named(config: Config) -> list[Path]:
    """The configuration; where there is none, what would become it."""
    return [config.file] if config.file else [config.directory / name for name in FILES]


def _shown(paths: list[str], home: Path) -> str:
    """`app.py, shop/mail.py and 3 more`."""
    names = [os.path.relpath(path, home) if path.startswith(f"{home}/") else path for path in paths]
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
