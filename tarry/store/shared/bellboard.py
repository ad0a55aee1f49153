"""Bells between the processes that share a database file: Unix datagram sockets beside it, and a board of flags.

A sleeper takes a slot: it holds the lock of `K.lock` as long as it lives, listens at `K.sock`, and while it sleeps
its byte of the file `board` says for what. Whoever has news looks at the board, which is mapped memory and costs next
to nothing while nobody sleeps, clears the flag and sends one datagram. Where sockets cannot be had, sleepers wake by
their own time limit.
"""

import contextlib
import fcntl
import mmap
import os
import socket
from pathlib import Path
from zlib import crc32

from tarry import files
from tarry.store.shared.bell import FOLLOW, FULL, RESULT, WORK, Bell, drained, one_of_each

SLOTS = 256
_NOBODY = bytes(SLOTS)
_CODES = {FULL: 1, RESULT: 2, FOLLOW: 3}
_FIRST_WORK_CODE = 4


class BellBoard:
    """The bells of one database file, seen from one process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._flags: mmap.mmap | None = None
        self._socket: socket.socket | None = None
        self._folder = -1

    def bell(self) -> Bell:
        """A bell of one's own; one without a slot, that only its own process can ring, when all are taken."""
        self._directory.mkdir(mode=0o750, exist_ok=True)
        flags = self._board(create=True)
        assert flags is not None
        return FileBell(self, flags)

    def ring_work(self) -> None:
        """Wakes one sleeper of each kind of worker with room."""
        if awaited := self._awaited():
            for slot in one_of_each((slot, f"{WORK}{code}") for slot, code in awaited if code >= _FIRST_WORK_CODE):
                self._ring(slot)

    def ring_result(self) -> None:
        """Wakes all who wait for jobs to finish."""
        self._ring_all({_CODES[RESULT], _CODES[FOLLOW]})

    def ring_follow(self) -> None:
        """Wakes all who watch jobs."""
        self._ring_all({_CODES[FOLLOW]})

    def ring_recall(self) -> None:
        """Wakes all workers that sleep."""
        self._ring_all({_CODES[FULL], *range(_FIRST_WORK_CODE, 256)})

    def close(self) -> None:
        """Gives back the sockets and the mapped memory."""
        if self._socket is not None:
            self._socket.close()
        if self._folder >= 0:
            os.close(self._folder)
        if self._flags is not None:
            self._flags.close()
        self._socket, self._folder, self._flags = None, -1, None

    def _ring_all(self, codes: set[int]) -> None:
        for slot, code in self._awaited():
            if code in codes:
                self._ring(slot)

    def _awaited(self) -> list[tuple[int, int]]:
        flags = self._board()
        if flags is None:
            return []
        seen = flags[:SLOTS]
        return [] if seen == _NOBODY else [(slot, code) for slot, code in enumerate(seen) if code]

    def _board(self, create: bool = False) -> mmap.mmap | None:
        if self._flags is None:
            path = self._directory / "board"
            if not create and not path.exists():
                return None
            fd = files.opened(path, os.O_RDWR | os.O_CREAT)
            try:
                if os.fstat(fd).st_size < SLOTS:
                    os.ftruncate(fd, SLOTS)
                self._flags = mmap.mmap(fd, SLOTS)
            finally:
                os.close(fd)
        return self._flags

    def _ring(self, slot: int) -> None:
        assert self._flags is not None
        self._flags[slot] = 0
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        # Nobody there any more, or its buffer is full and it wakes anyway: either way nothing is owed.
        with contextlib.suppress(OSError):
            self._socket.sendto(b"\1", self.address(slot))

    def address(self, slot: int) -> str:
        """The socket's path, kept below the 108 bytes that the kernel takes however deep the directory is."""
        if self._folder < 0:
            self._folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        near = f"/proc/self/fd/{self._folder}"
        return f"{near}/{slot}.sock" if os.path.exists(near) else str(self._directory / f"{slot}.sock")

    def lock_path(self, slot: int) -> Path:
        """The file whose lock says that the slot is taken."""
        return self._directory / f"{slot}.lock"


class FileBell(Bell):
    """A sleeper's slot on the board."""

    def __init__(self, board: BellBoard, flags: mmap.mmap) -> None:
        super().__init__()
        self._flags = flags
        self._slot, self._lock = _taken_slot(board)
        self._socket: socket.socket | None = None
        if self._slot >= 0:
            self._flags[self._slot] = 0
            self._socket = _listening(board.address(self._slot))

    def arm(self, topic: str) -> None:
        if self._socket is not None and not self._flags.closed:
            self._flags[self._slot] = _code(topic)

    def disarm(self) -> None:
        if self._socket is not None and not self._flags.closed:
            self._flags[self._slot] = 0

    def filenos(self) -> list[int]:
        heard = super().filenos()
        return heard if self._socket is None else [*heard, self._socket.fileno()]

    def clear(self) -> bytes:
        if self._socket is not None:
            drained(self._socket)
        return super().clear()

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


def _taken_slot(board: BellBoard) -> tuple[int, int]:
    for slot in range(SLOTS):
        fd = files.opened(board.lock_path(slot), os.O_RDWR | os.O_CREAT, files.OURS)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
        else:
            return slot, fd
    return -1, -1


def _listening(path: str) -> socket.socket | None:
    """The lock is ours, so a socket that lies there is a dead process's."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.setblocking(False)
    try:
        listener.bind(path)
    except OSError:
        listener.close()
        return None
    return listener
