"""What every process is doing, in a mapped file beside the pid file: each child writes its slot, anyone reads it.

Asking nobody and waiting for nobody, a reader gets its answer also while the master is stopped or dead. Layout: a
header, then a slot for each child, each followed by its cells; a cell tells which job one of its threads is at.
"""

import contextlib
import mmap
import os
import struct
from pathlib import Path
from time import monotonic, time

from msgspec import Struct

from tarry.errors import MasterError

STARTING, SERVING, STOPPING, QUITTING = "starting", "serving", "stopping", "quitting"
EMPTY, READY, GONE = "empty", "ready", "gone"

_STATES = (STARTING, SERVING, STOPPING, QUITTING)
_BOOTS = (EMPTY, STARTING, READY, STOPPING, GONE)

_MAGIC, _VERSION = b"tarryBRD", 1
_HEADER = struct.Struct("=8sIIIIdB")
_HEADER_SIZE = 128
_STATE = _HEADER.size - 1

# A slot is in three parts, each with fields that change together: who sits there, how it ended last, how it is doing.
_SEAT = struct.Struct("=16s64sIIId")
_LAST_EXIT = struct.Struct("=120s")
_PID = struct.Struct("=I")
_OWNER = struct.Struct("=120s")
_COUNTS = struct.Struct("=QQ")
_BEAT = struct.Struct("=Qd")
_PID_AT = 88
_LAST_EXIT_AT = 104
_BOOT_AT = 224
_OWNER_AT = 232
_COUNTS_AT = 352
_BEAT_AT = 368
_SLOT_SIZE = 384

_CELL = struct.Struct("=16sQdd88s")
_pack_id = struct.Struct("=16s").pack_into
_pack_body = struct.Struct("=Qdd88s").pack_into
_CELL_SIZE = 128
_NO_JOB = bytes(16)


class Running(Struct, frozen=True):
    """A job that is being run. `seconds`: for how long already."""

    id: str
    task: str
    seconds: float
    epoch: int


class ChildStatus(Struct, frozen=True):
    """One child as it wrote of itself, or as it was when it ended."""

    role: str
    pool: str
    number: int
    generation: int
    pid: int
    boot: str
    """empty, starting, ready, stopping or gone."""
    owner: str
    started: float
    """Seconds since the epoch."""
    processed: int
    failed: int
    rss: int
    """Bytes."""
    heartbeat: float
    """Seconds since it last gave a sign of life; -1: it gave none yet."""
    last_exit: str
    """How the process that sat here before ended; empty: there was none."""
    running: list[Running]

    @property
    def name(self) -> str:
        """`worker default.1`, as in the log."""
        return named(self.role, self.pool, self.number)


class Board(Struct, frozen=True):
    """The whole scoreboard at one moment."""

    pid: int
    """The master's."""
    state: str
    """starting, serving, stopping or quitting: the last that the master wrote."""
    started: float
    children: list[ChildStatus]
    alive: bool = True
    """False: this is what a dead master left behind. `read` cannot know; `control.status` does."""


class Cell(Struct, frozen=True, gc=False):
    """A job as one thread of a child noted it. Times are of the monotonic clock; `kill_at` 0: never."""

    id: bytes
    epoch: int
    since: float
    kill_at: float
    task: str


Buffer = mmap.mmap | bytes


def named(role: str, pool: str, number: int) -> str:
    """`worker default.1`; a role without pools: `keeper`."""
    return f"{role} {pool}.{number}" if pool else role


class Slot:
    """One child's place. The child writes it, the master only at birth and death; a cell has one writing thread."""

    __slots__ = ("_at", "_cells", "_cells_at", "_memory")

    def __init__(self, memory: mmap.mmap, at: int, cells: int) -> None:
        self._memory, self._at, self._cells = memory, at, cells
        self._cells_at = at + _SLOT_SIZE

    def on(self, cell: int, id: bytes, epoch: int, task: bytes, kill_at: float) -> None:
        """The cell's thread begins a job. kill_at: monotonic seconds after which the master kills us; 0: never.

        The id is cleared first and written last: a cell half written is no job.
        """
        at, memory = self._cells_at + cell * _CELL_SIZE, self._memory
        _pack_id(memory, at, b"")
        _pack_body(memory, at + 16, epoch, monotonic(), kill_at, task)
        _pack_id(memory, at, id)

    def off(self, cell: int) -> None:
        """The cell's thread is done with its job."""
        _pack_id(self._memory, self._cells_at + cell * _CELL_SIZE, b"")

    def count(self, processed: int, failed: int) -> None:
        """Totals since the process began."""
        _COUNTS.pack_into(self._memory, self._at + _COUNTS_AT, processed, failed)

    def beat(self, rss: int) -> None:
        """A sign of life, with the bytes of memory in use."""
        _BEAT.pack_into(self._memory, self._at + _BEAT_AT, rss, monotonic())

    def own(self, owner: str) -> None:
        """Under which name it claims jobs: who is told gone when the process dies. At most 120 bytes; MasterError."""
        text = owner.encode()
        if len(text) > _OWNER.size:
            raise MasterError(f"owner {owner!r} is longer than {_OWNER.size} bytes: shorten the pool's name")
        _OWNER.pack_into(self._memory, self._at + _OWNER_AT, text)

    def owner(self) -> str:
        """Empty: it has not begun to claim."""
        return _text(_OWNER.unpack_from(self._memory, self._at + _OWNER_AT)[0])

    def boot(self, state: str) -> None:
        """One of empty, starting, ready, stopping, gone."""
        self._memory[self._at + _BOOT_AT] = _BOOTS.index(state)

    def begin(self, role: str, pool: str, number: int, generation: int) -> None:
        """A new process is about to sit here; how the one before ended stays."""
        last = _LAST_EXIT.unpack_from(self._memory, self._at + _LAST_EXIT_AT)[0]
        end = self._cells_at + self._cells * _CELL_SIZE
        self._memory[self._at : end] = bytes(end - self._at)
        _LAST_EXIT.pack_into(self._memory, self._at + _LAST_EXIT_AT, last)
        _SEAT.pack_into(self._memory, self._at, role.encode(), pool.encode(), number, generation, 0, time())
        self.boot(STARTING)

    def seated(self, pid: int) -> None:
        """The process is there."""
        _PID.pack_into(self._memory, self._at + _PID_AT, pid)

    def ended(self, why: str) -> None:
        """The process is gone; its counts stay to be seen, its jobs do not."""
        _LAST_EXIT.pack_into(self._memory, self._at + _LAST_EXIT_AT, why.encode())
        self.boot(GONE)
        for cell in range(self._cells):
            self.off(cell)

    def cells(self) -> list[Cell]:
        """The jobs it is at now, each seen whole even while it is being written."""
        found = (_steady_cell(self._memory, self._cells_at + n * _CELL_SIZE) for n in range(self._cells))
        return [cell for cell in found if cell is not None]


class Scoreboard:
    """The master's side: makes the file, hands out slots, says what state it is in."""

    def __init__(self, path: Path, slots: int, cells: int) -> None:
        """Makes a new file in the place of an old one, whose children, if any still live, keep theirs."""
        self._path, self._cells = path, cells
        size = _HEADER_SIZE + slots * (_SLOT_SIZE + cells * _CELL_SIZE)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.ftruncate(fd, size)
            self._memory = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        _HEADER.pack_into(self._memory, 0, _MAGIC, _VERSION, os.getpid(), slots, cells, time(), 0)
        os.replace(draft, path)

    def slot(self, index: int) -> Slot:
        """The place of a child, from 0."""
        return Slot(self._memory, _HEADER_SIZE + index * (_SLOT_SIZE + self._cells * _CELL_SIZE), self._cells)

    def state(self, state: str) -> None:
        """One of starting, serving, stopping, quitting."""
        self._memory[_STATE] = _STATES.index(state)

    def remove(self) -> None:
        """At a clean end there is nothing left to see."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        self._memory.close()


def board_path(pid_file: Path) -> Path:
    """Where the scoreboard of the master with that pid file lies."""
    return pid_file.with_name(pid_file.name + ".board")


def read(path: Path) -> Board | None:
    """The scoreboard as it is now; None if there is none, or it is no scoreboard. MasterError: of another release."""
    try:
        memory = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise MasterError(f"{path} cannot be read ({error.strerror}): run this as the master's user") from None
    return _parsed(memory, path)


def _parsed(memory: bytes, path: Path) -> Board | None:
    if len(memory) < _HEADER_SIZE or not memory.startswith(_MAGIC):
        return None
    _, version, pid, slots, cells, started, state = _HEADER.unpack_from(memory)
    if version != _VERSION:
        raise MasterError(f"{path} was written by another release of tarry: use that one, or `tarry restart`")
    size = _SLOT_SIZE + cells * _CELL_SIZE
    if len(memory) != _HEADER_SIZE + slots * size or state >= len(_STATES):
        return None
    places = range(_HEADER_SIZE, len(memory), size)
    children = [_child(memory, at, cells) for at in places if 0 < memory[at + _BOOT_AT] < len(_BOOTS)]
    return Board(pid, _STATES[state], started, children)


def _child(memory: bytes, at: int, cells: int) -> ChildStatus:
    role, pool, number, generation, _, started = _SEAT.unpack_from(memory, at)
    processed, failed = _COUNTS.unpack_from(memory, at + _COUNTS_AT)
    rss, beat = _BEAT.unpack_from(memory, at + _BEAT_AT)
    now = monotonic()
    found = (_cell(memory, at + _SLOT_SIZE + n * _CELL_SIZE) for n in range(cells))
    return ChildStatus(
        role=_text(role),
        pool=_text(pool),
        number=number,
        generation=generation,
        pid=_PID.unpack_from(memory, at + _PID_AT)[0],
        boot=_BOOTS[memory[at + _BOOT_AT]],
        owner=_text(_OWNER.unpack_from(memory, at + _OWNER_AT)[0]),
        started=started,
        processed=processed,
        failed=failed,
        rss=rss,
        heartbeat=max(0.0, now - beat) if beat else -1.0,
        last_exit=_text(_LAST_EXIT.unpack_from(memory, at + _LAST_EXIT_AT)[0]),
        running=[Running(cell.id.hex(), cell.task, max(0.0, now - cell.since), cell.epoch) for cell in found if cell],
    )


def _cell(memory: Buffer, at: int) -> Cell | None:
    id, epoch, since, kill_at, task = _CELL.unpack_from(memory, at)
    return None if id == _NO_JOB else Cell(id, epoch, since, kill_at, _text(task))


def _steady_cell(memory: Buffer, at: int) -> Cell | None:
    """While its thread writes on and off, one look may see the halves of two jobs; two equal looks do not."""
    for _ in range(5):
        cell = _cell(memory, at)
        if cell == _cell(memory, at):
            return cell
    return None


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("utf-8", "ignore")
