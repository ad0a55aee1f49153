"""What the keeper writes once for each generation of its master: when which code began to run."""

import os
import time
from itertools import islice
from pathlib import Path

import msgspec

from tarry import __version__
from tarry.client.clock import Clock
from tarry.config.config import Config
from tarry.model.checks.texts import cut
from tarry.model.duration import SECOND
from tarry.process.parent_board import ParentBoard
from tarry.store.queries.deploys import MOST_BY, MOST_KEPT, PREFIX, Deploy, read_deploys
from tarry.store.rules import owner
from tarry.store.rules.base import Store

MOST_VERSION = 100
"""Characters of the version of an app."""
_MOST_PARENTS, _MOST_BYTES = 40, 2**16
"""Folders above the app's that are looked at for a repository, and bytes of a file there."""
_MOST_LINES, _MOST_LINE = 10**6, 4096
"""Lines of its list of branches, and bytes of one."""


class DeployMark:
    """Belongs to the keeper's process, a child of the master: whose generation its code is of."""

    def __init__(self, store: Store, config: Config, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._master = ParentBoard(config)
        # Read once, now: the files may be those of the next deploy already when the store is there again.
        self._version = cut(config.master.app_version or git_commit(config.directory), MOST_VERSION)
        self._generation = 0

    def write(self) -> bool:
        """Writes the mark of the generation that serves now, unless it has one. False: it had. StoreError."""
        board = self._master.read()
        if board is None or board.notice.generation == self._generation:
            return False
        instance, generation = owner.master_name(self._master.pid), board.notice.generation
        # While a reload goes on, the keeper of before may still be here, with the version of before.
        if not any(child.pid == os.getpid() and child.generation == generation for child in board.children):
            return False
        # By their pids: a worker that has just begun has no name yet.
        children = [child for child in board.children if child.generation == generation and child.pid]
        ticks = min((int(start) for one in children if (start := owner.start_time(one.pid))), default=0)
        # Not when it is written: the first workers may have met errors by then, and the store may have been away.
        age = max(0.0, time.time() - min(one.started for one in children))
        origin, at = board.notice.origin, self._clock.now() - round(age * SECOND)
        mark = Deploy(instance, generation, at, self._version, __version__, ticks, origin.kind, cut(origin.by, MOST_BY))
        # Another keeper of the same generation may have written it, before it died.
        is_new = self._store.kv_cas(f"{PREFIX}{instance}:{generation}", msgspec.json.encode(mark), None)
        self._generation = generation
        if is_new:
            self._forget_oldest()
        return is_new

    def _forget_oldest(self) -> None:
        for old in read_deploys(self._store)[MOST_KEPT:]:
            name = f"{PREFIX}{old.instance}:{old.generation}"
            self._store.kv_cas(name, None, self._store.kv_get(name))


def git_commit(directory: Path) -> str:
    """The first 12 digits of the commit that is checked out where this folder is; empty: there is none. Raises nothing,
    and runs no program."""
    try:
        folder = next(one for one in (directory, *list(directory.parents)[:_MOST_PARENTS]) if (one / ".git").exists())
        git = folder / ".git"
        if git.is_file():
            # Of a worktree: a file that names its folder.
            git = folder / _text(git).removeprefix("gitdir:").strip()
        head = _text(git / "HEAD").strip()
        commit = head if not head.startswith("ref:") else _commit_of(git, head.removeprefix("ref:").strip())
    except (OSError, StopIteration, ValueError):
        return ""
    return commit[:12] if len(commit) >= 40 and all(digit in "0123456789abcdef" for digit in commit) else ""


def _commit_of(git: Path, ref: str) -> str:
    shared = git / "commondir"
    for home in (git, git / _text(shared).strip() if shared.exists() else git):
        if (home / ref).is_file():
            return _text(home / ref).strip()
        if found := _packed_commit(home / "packed-refs", f" {ref}\n".encode()):
            return found
    return ""


def _packed_commit(path: Path, end: bytes) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        # Line by line: there may be some hundred thousands.
        lines = islice(iter(lambda: file.readline(_MOST_LINE), b""), _MOST_LINES)
        found = next((line for line in lines if line.endswith(end)), b"")
    return found.partition(b" ")[0].decode("utf-8", "replace")


def _text(path: Path) -> str:
    # To open a pipe would wait for ever for somebody who writes.
    if not path.is_file():
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).decode("utf-8", "replace")
