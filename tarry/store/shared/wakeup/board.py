"""Wake-up between the processes that share a database file: Unix datagram sockets beside it, and a board of flags.

A sleeper takes a slot K: it holds the lock of `K.lock` as long as it lives and listens at `K.sock`. While it sleeps,
its byte of the file `board` holds a code for its topic. A process with news reads the board, clears the flag of a
sleeper and sends it one datagram. Without sockets, sleepers wake by their own time limit.
"""

# The board is mapped memory: while nobody sleeps, news cost next to nothing.

import contextlib
import mmap
import os
import socket
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from zlib import crc32

from tarry import files, platform
from tarry.model.wake import WakeReason
from tarry.store.rules.sleeper import FOLLOW, FULL, RESULT, WORK, Wakeup, choose_sleepers, drain

SLOTS = 256
_NOBODY = bytes(SLOTS)
_CODES = {FULL: 1, RESULT: 2, FOLLOW: 3}
_FIRST_WORK_CODE = 4
# A flag is one byte, so a worker's topic is known here only by a hash of it.
_TOPICS = {code: topic for topic, code in _CODES.items()} | {
    code: f"{WORK}{code}" for code in range(_FIRST_WORK_CODE, 256)
}


def board_directory(database: Path) -> Path:
    """Where the board of a database file is."""
    return Path(f"{database}-board")


class WakeupBoard:
    """The sleepers on one database file, seen from one process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # As text, once: to build a path takes longer than to look whether it is there, and each insert looks.
        self._path = str(directory / "board")
        self._flags: mmap.mmap | None = None
        self._socket: socket.socket | None = None
        self._near: tuple[str, Callable[[], object]] | None = None
        """The directory's path for sockets, and what gives it up."""

    def wakeup(self) -> Wakeup:
        """A new sleeper. If all slots are taken, or the disk fails or is full, it has none, and only its own process
        can wake it."""
        # Only a hint, as `wake` is: a worker must start all the same.
        flags = None
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o750, exist_ok=True)
            flags = self._board(create=True)
        return BoardWakeup(self, flags)

    def wake(self, *reasons: WakeReason) -> bool:
        """Wakes those who sleep for one of the reasons. False: nobody does. Raises nothing."""
        # Only a hint: without it they look by themselves. It comes after a commit, where an error would say that what
        # is stored is not. This process may have no descriptor left, for instance.
        with contextlib.suppress(OSError):
            slots = self._choose(reasons)
            for slot in slots:
                self._wake(slot)
            return bool(slots)
        return False

    def has_sleepers(self, *reasons: WakeReason) -> bool:
        """Whether anybody sleeps for one of the reasons. Raises nothing."""
        with contextlib.suppress(OSError):
            return bool(self._choose(reasons))
        return False

    def _choose(self, reasons: Collection[WakeReason]) -> Sequence[int]:
        """The slots of those to wake."""
        flags = self._board()
        if flags is None or (seen := flags[:SLOTS]) == _NOBODY:
            return ()
        return choose_sleepers([(slot, _TOPICS[code]) for slot, code in enumerate(seen) if code], reasons)

    def close(self) -> None:
        """Releases the sockets and the mapped memory."""
        if self._socket is not None:
            self._socket.close()
        if self._near is not None:
            self._near[1]()
        if self._flags is not None:
            self._flags.close()
        self._socket, self._near, self._flags = None, None, None

    def _board(self, create: bool = False) -> mmap.mmap | None:
        if self._flags is None:
            if not create and not os.path.exists(self._path):
                return None
            fd = files.open_private(self._path, os.O_RDWR | os.O_CREAT)
            try:
                # Also of a board that is long enough: it may have no blocks yet.
                platform.allocate(fd, SLOTS)
                self._flags = mmap.mmap(fd, SLOTS)
            finally:
                os.close(fd)
        return self._flags

    def _wake(self, slot: int) -> None:
        assert self._flags is not None
        # It is awake from now on, so other processes need not wake it again.
        self._flags[slot] = 0
        if self._socket is None:
            self._socket = platform.unix_socket(socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        # The sleeper is gone, or its buffer is full: then it wakes anyway.
        with contextlib.suppress(OSError):
            self._socket.sendto(b"\1", self.address(slot))

    def address(self, slot: int) -> str:
        """The path of the slot's socket."""
        if self._near is None:
            self._near = platform.near_folder(self._directory)
        return f"{self._near[0]}/{slot}.sock"

    def lock_path(self, slot: int) -> Path:
        """The file whose lock marks the slot as taken."""
        return self._directory / f"{slot}.lock"


class BoardWakeup(Wakeup):
    """A sleeper's slot on the board."""

    def __init__(self, board: WakeupBoard, flags: mmap.mmap | None) -> None:
        super().__init__()
        self._flags = flags
        self._slot = self._lock = -1
        self._socket: socket.socket | None = None
        if flags is not None:
            with contextlib.suppress(OSError):
                self._take_slot(board, flags)

    def _take_slot(self, board: WakeupBoard, flags: mmap.mmap) -> None:
        self._slot, self._lock = _take_slot(board)
        if self._slot >= 0:
            flags[self._slot] = 0
            self._socket = _bind(board.address(self._slot))

    @property
    def _live_flags(self) -> mmap.mmap | None:
        """Where others see for what it listens; None: they cannot wake it."""
        return None if self._socket is None or self._flags is None or self._flags.closed else self._flags

    def listen(self, topic: str) -> None:
        if (flags := self._live_flags) is not None:
            flags[self._slot] = _code(topic)

    def ignore(self) -> None:
        if (flags := self._live_flags) is not None:
            flags[self._slot] = 0

    def is_listening(self) -> bool:
        return (flags := self._live_flags) is not None and flags[self._slot] != 0

    def filenos(self) -> list[int]:
        heard = super().filenos()
        return heard if self._socket is None else [*heard, self._socket.fileno()]

    def clear(self) -> bytes:
        woken = b"" if self._socket is None else drain(self._socket)
        return woken + super().clear()

    def close(self) -> None:
        super().close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _code(topic: str) -> int:
    return _CODES.get(topic) or _FIRST_WORK_CODE + crc32(topic.encode()) % (256 - _FIRST_WORK_CODE)


def _take_slot(board: WakeupBoard) -> tuple[int, int]:
    for slot in range(SLOTS):
        # A lock ends with its process, so a crash leaves no slot taken.
        fd = files.open_private(board.lock_path(slot), os.O_RDWR | os.O_CREAT, files.OURS)
        if platform.try_lock(fd):
            return slot, fd
        os.close(fd)
    return -1, -1


def _bind(path: str) -> socket.socket | None:
    """A socket at this path; None if there can be none."""
    # The slot's lock is ours, so a dead process left the socket that is there.
    with contextlib.suppress(OSError):
        os.unlink(path)
    listener = None
    try:
        listener = platform.unix_socket(socket.SOCK_DGRAM)
        listener.setblocking(False)
        # Before it has a name; the umask could leave it open to all.
        os.fchmod(listener.fileno(), 0o660)
        listener.bind(path)
    except OSError:
        if listener is not None:
            listener.close()
        return None
    return listener
