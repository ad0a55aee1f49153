"""What every process does, in a mapped file beside the pid file. Each child writes its slot; any process may read.

A reader needs no answer from the master, so it works also while the master is stopped or dead. Layout: a header, then a
slot for each child, each followed by its cells; a cell shows which job one thread of the child runs.
"""

import contextlib
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic, time
from uuid import UUID
from zlib import crc32

import msgspec
from msgspec import Struct

from tarry import files
from tarry.errors import MasterError
from tarry.model.killing import NOT_WANTED, TIMEOUT, text_of
from tarry.runtime.master_status import MasterStatus, encode_within

STARTING, SERVING, STOPPING, QUITTING, RESTING = "starting", "serving", "stopping", "quitting", "resting"
EMPTY, READY, GONE = "empty", "ready", "gone"

_STATES = (STARTING, SERVING, STOPPING, QUITTING, RESTING)
_BOOTS = (EMPTY, STARTING, READY, STOPPING, GONE)

_MAGIC, _VERSION = b"tarryBRD", 4
_HEADER = struct.Struct("=8sIIQdB")
_HEADER_SIZE = 16384
_STATE = _HEADER.size - 1
_END = struct.Struct("=Q")
_END_AT = 16
# Behind the header stand two copies of the master's status, as JSON with a checksum, written in turns. A reader may
# find one half written; it may stay so if the master was stopped in the middle.
_NOTICE = struct.Struct("=II")
_NOTICES_AT = (64, _HEADER_SIZE // 2)
_NOTICE_NUMBER_AT = 48
_MOST_NOTICE = _HEADER_SIZE // 2 - 64 - _NOTICE.size

# A slot has three parts, each with fields that change together: which process, how the last one ended, its figures.
_SEAT = struct.Struct("=16s64sIIId")
_LAST_EXIT = struct.Struct("=120s")
_PID = struct.Struct("=I")
_OWNER = struct.Struct("=120s")
_COUNTS = struct.Struct("=QQ")
_BEAT = struct.Struct("=Qd")
_LOAD = struct.Struct("=dddI")
_PID_AT = 88
_LAST_EXIT_AT = 104
_BOOT_AT = 224
_OWNER_AT = 232
_COUNTS_AT = 352
_BEAT_AT = 368
_CELLS = struct.Struct("=I")
_CELLS_AT = 384
_LOAD_AT = 392
_SLOT_SIZE = 512
_ROOM = 2
"""A new board has room for so many times the first processes: each may be replaced, and a reload may add more. Beyond
that the board grows."""

_CELL = struct.Struct("=16sQdd79sBQ")
_pack_id = struct.Struct("=16s").pack_into
_pack_body = struct.Struct("=Qdd79sB").pack_into
_pack_moment = struct.Struct("=d").pack_into
_pack_reason = struct.Struct("=B").pack_into
_pack_thread = struct.Struct("=Q").pack_into
_CELL_SIZE = 128
_NO_JOB = bytes(16)


class BoardJob(Struct, frozen=True):
    """A running job. id: with hyphens. `seconds`: how long it has run."""

    id: str
    task: str
    seconds: float
    epoch: int


class ChildStatus(Struct, frozen=True):
    """One child, as it describes itself, or as it was at its end."""

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
    """Seconds since its last sign of life; -1: there was none yet."""
    last_exit: str
    """How the previous process in this place ended; empty: there was none."""
    running: list[BoardJob]

    @property
    def name(self) -> str:
        """`worker default.1`, as in the log."""
        return process_name(self.role, self.pool, self.number)


class Board(Struct, frozen=True):
    """The whole scoreboard at one moment."""

    pid: int
    """The master's."""
    state: str
    """starting, serving, stopping, quitting or resting: the last state that the master wrote."""
    started: float
    children: list[ChildStatus]
    notice: MasterStatus = MasterStatus()
    alive: bool = True
    """False: a dead master left this board. `read` cannot know; `control.status` does."""


class JobCell(Struct, frozen=True, gc=False):
    """A job, as the thread that runs it wrote it. Times are of the monotonic clock; `kill_at` 0: never."""

    id: bytes
    epoch: int
    since: float
    kill_at: float
    task: str
    thread: int = 0
    """`threading.get_ident()` of the thread; 0: unknown."""
    reason: int = TIMEOUT
    """Why it is killed then: a code of model/killing.py."""

    @property
    def why(self) -> str:
        """The reason as text for the log: "past its timeout"."""
        return text_of(self.reason)


Buffer = mmap.mmap | bytes


def process_name(role: str, pool: str, number: int) -> str:
    """`worker default.1`; a role without pools: `keeper`."""
    return f"{role} {pool}.{number}" if pool else role


class BoardSlot:
    """One child's part of the board. The child writes it, the master only at start and end. A cell has one writer."""

    __slots__ = ("_at", "_cells_at", "_memory", "size")

    def __init__(self, memory: mmap.mmap, at: int, cells: int) -> None:
        self._memory, self._at = memory, at
        self.size = cells
        """How many cells it has."""
        self._cells_at = at + _SLOT_SIZE

    def on(self, cell: int, id: bytes, epoch: int, task: bytes, kill_at: float, reason: int = TIMEOUT) -> None:
        """The cell's thread begins a job. kill_at: monotonic seconds from which on the master kills us; 0: never.

        The id is cleared first and written last, so a half-written cell shows no job.
        """
        at, memory = self._cells_at + cell * _CELL_SIZE, self._memory
        _pack_id(memory, at, b"")
        _pack_body(memory, at + 16, epoch, monotonic(), kill_at, task, reason)
        _pack_id(memory, at, id)

    def off(self, cell: int) -> None:
        """The cell's thread has ended its job."""
        _pack_id(self._memory, self._cells_at + cell * _CELL_SIZE, b"")

    def thread(self, cell: int, ident: int) -> None:
        """Sets the cell's thread: `threading.get_ident()`."""
        _pack_thread(self._memory, self._cells_at + cell * _CELL_SIZE + 120, ident)

    def limit(self, cell: int, kill_at: float, reason: int) -> None:
        """Sets another kill time for the job that the cell's thread runs."""
        at = self._cells_at + cell * _CELL_SIZE
        _pack_reason(self._memory, at + 119, reason)
        _pack_moment(self._memory, at + 32, kill_at)

    def count(self, processed: int, failed: int) -> None:
        """Sets the totals since the process began."""
        _put(self._memory, self._at + _COUNTS_AT, _COUNTS.pack(processed, failed))

    def beat(self, rss: int) -> None:
        """A sign of life, with the bytes of memory in use."""
        _put(self._memory, self._at + _BEAT_AT, _BEAT.pack(rss, monotonic()))

    def load(self, fill: float, held: int) -> None:
        """From now on this part of the capacity is in use, 0 to 1, and the process holds so many jobs."""
        busy, before, since, held_before = _LOAD.unpack_from(self._memory, self._at + _LOAD_AT)
        if (fill, held) != (before, held_before):
            now = monotonic()
            whole = _LOAD.pack(busy + before * (now - since), fill, now, held)
            _put(self._memory, self._at + _LOAD_AT, whole)

    def load_figures(self, now: float) -> tuple[float, float, int]:
        """Seconds of full use since the process began, the part in use now, and how many jobs it holds."""
        busy, fill, since, held = _LOAD.unpack_from(self._memory, self._at + _LOAD_AT)
        return busy + fill * max(0.0, now - since), fill, held

    def set_owner(self, owner: str) -> None:
        """Sets the name under which the process claims jobs; the keeper gets it if the process dies. At most 120 bytes;
        MasterError."""
        text = owner.encode()
        if len(text) > _OWNER.size:
            raise MasterError(f"owner {owner!r} is longer than {_OWNER.size} bytes: shorten the pool's name")
        _put(self._memory, self._at + _OWNER_AT, _OWNER.pack(text))

    def owner(self) -> str:
        """The name under which it claims jobs; empty: it claims none yet."""
        return _decode_text(_OWNER.unpack_from(self._memory, self._at + _OWNER_AT)[0])

    def set_boot_state(self, state: str) -> None:
        """One of empty, starting, ready, stopping, gone."""
        self._memory[self._at + _BOOT_AT] = _BOOTS.index(state)

    def prepare(self, role: str, pool: str, number: int, generation: int) -> None:
        """Prepares the slot for a new process; how the last one ended stays."""
        last = self.last_exit()
        self.clear()
        self.set_last_exit(last)
        _SEAT.pack_into(self._memory, self._at, role.encode(), pool.encode(), number, generation, 0, time())
        self.set_boot_state(STARTING)

    def set_pid(self, pid: int) -> None:
        """The process has been forked."""
        _put(self._memory, self._at + _PID_AT, _PID.pack(pid))

    def mark_exited(self, why: str) -> None:
        """The process is dead. Its counts stay visible, its jobs do not."""
        self.set_last_exit(why)
        self.set_boot_state(GONE)
        for cell in range(self.size):
            self.off(cell)

    def last_exit(self) -> str:
        """How the process before this one ended."""
        return _decode_text(_LAST_EXIT.unpack_from(self._memory, self._at + _LAST_EXIT_AT)[0])

    def set_last_exit(self, why: str) -> None:
        """Sets how the previous process ended, which had another slot."""
        _put(self._memory, self._at + _LAST_EXIT_AT, _LAST_EXIT.pack(why.encode()))

    def clear(self) -> None:
        """Empties the slot."""
        size, end = self._at + _CELLS_AT, self._cells_at + self.size * _CELL_SIZE
        self._memory[self._at : size] = bytes(_CELLS_AT)
        # The cell count is never zero, not for an instant: readers need it to find the next slot.
        _put(self._memory, size, _CELLS.pack(self.size))
        self._memory[size + _CELLS.size : end] = bytes(end - size - _CELLS.size)

    def counts(self) -> tuple[int, int]:
        """Processed and failed jobs, as the process last wrote them."""
        processed, failed = _COUNTS.unpack_from(self._memory, self._at + _COUNTS_AT)
        return processed, failed

    def rss(self) -> int:
        """Bytes of memory in use, as the process last wrote them."""
        return int(_BEAT.unpack_from(self._memory, self._at + _BEAT_AT)[0])

    def cells(self) -> list[JobCell]:
        """The running jobs. Each is read whole even while it is written."""
        return [cell for number in range(self.size) if (cell := self.cell(number)) is not None]

    def cell(self, number: int) -> JobCell | None:
        """The job in that cell; None: there is none."""
        return _steady_cell(self._memory, self._cells_at + number * _CELL_SIZE)


class Scoreboard:
    """The master's side: creates the file, allocates slots, writes the state."""

    def __init__(self, path: Path, cells: Iterable[int] = ()) -> None:
        """Creates a new file in place of an old one; children of a former master keep the old file. cells: the cell
        counts of the first slots, so that there is room for them. MasterError: the disk has no room."""
        self._path = path
        self._free: list[BoardSlot] = []
        size = _HEADER_SIZE + _ROOM * sum(_SLOT_SIZE + count * _CELL_SIZE for count in cells)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            self._memory = _map_file(draft, size, os.O_CREAT | os.O_TRUNC)
            _HEADER.pack_into(self._memory, 0, _MAGIC, _VERSION, os.getpid(), _HEADER_SIZE, time(), 0)
            self.publish(MasterStatus())
            os.replace(draft, path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            why = f"{path} cannot be written ({error.strerror}): set master.pid_file to a place that can"
            raise MasterError(why) from None

    def allocate(self, cells: int) -> BoardSlot:
        """An empty slot with at least so many cells. OSError: the disk has no room for another."""
        encode_within = [slot for slot in self._free if slot.size >= cells]
        if encode_within:
            slot = min(encode_within, key=lambda free: free.size)
            self._free.remove(slot)
        else:
            slot = self._append_slot(cells)
        slot.clear()
        return slot

    def release(self, slot: BoardSlot) -> None:
        """Empties the slot and makes it free again."""
        slot.clear()
        self._free.append(slot)

    def set_state(self, state: str) -> None:
        """One of starting, serving, stopping, quitting, resting."""
        self._memory[_STATE] = _STATES.index(state)

    def publish(self, status: MasterStatus) -> None:
        """Writes the status for readers; texts that are too long are cut."""
        text = encode_within(status, _MOST_NOTICE)
        other = 1 - self._memory[_NOTICE_NUMBER_AT]
        _put(self._memory, _NOTICES_AT[other], _NOTICE.pack(crc32(text), len(text)) + text)
        self._memory[_NOTICE_NUMBER_AT] = other

    def remove(self) -> None:
        """Removes the file, at a clean end."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        self._memory.close()

    def _append_slot(self, cells: int) -> BoardSlot:
        (at,) = _END.unpack_from(self._memory, _END_AT)
        end = at + _SLOT_SIZE + cells * _CELL_SIZE
        if end > len(self._memory):
            # A child keeps its shorter mapping: its own slot is in it.
            self._memory = _map_file(self._path, 2 * end, 0)
        slot = BoardSlot(self._memory, at, cells)
        slot.clear()
        _put(self._memory, _END_AT, _END.pack(end))
        return slot


def _put(memory: mmap.mmap, at: int, whole: bytes) -> None:
    """Writes in one piece: `pack_into` writes zeros first, and a reader could see them."""
    memory[at : at + len(whole)] = whole


def _map_file(path: Path, size: int, flags: int) -> mmap.mmap:
    """Maps the file with this size. Its disk space is allocated now: a missing page later would kill the process."""
    fd = files.opened(path, os.O_RDWR | flags)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        else:  # macOS
            os.ftruncate(fd, size)
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)


def board_path(pid_file: Path) -> Path:
    """The path of the scoreboard of the master with that pid file."""
    return pid_file.with_name(pid_file.name + ".board")


def read(path: Path) -> Board | None:
    """The scoreboard now; None: there is none, or it is no scoreboard. MasterError: it is of another release."""
    try:
        memory = _read_steady(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise MasterError(f"{path} cannot be read ({error.strerror}): run this as the master's user") from None
    return _parse(memory, path)


def set_kill_time(path: Path, owner: str, id: bytes, epoch: int, kill_at: float, reason: int = NOT_WANTED) -> bool:
    """If that owner still runs that attempt, its process is killed from then on (monotonic seconds; an earlier time
    stands). Any process may call it. False: the attempt does not run, or the board cannot be written."""
    try:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            slots = [BoardSlot(memory, at, cells) for at, cells in _slots(memory, _END.unpack_from(memory, _END_AT)[0])]
            return any(_set_kill_time(slot, id, epoch, kill_at, reason) for slot in slots if slot.owner() == owner)
    except (OSError, ValueError, struct.error):
        return False


def _set_kill_time(slot: BoardSlot, id: bytes, epoch: int, kill_at: float, reason: int) -> bool:
    found = False
    for number in range(slot.size):
        cell = slot.cell(number)
        if cell is not None and (cell.id, cell.epoch) == (id, epoch):
            if not 0 < cell.kill_at <= kill_at:
                slot.limit(number, kill_at, reason)
            found = True
    return found


def _read_steady(path: Path) -> bytes:
    """Reads the file, again if no copy of the master's status was whole."""
    for _ in range(5):
        memory = path.read_bytes()
        if len(memory) < _HEADER_SIZE or _last_status(memory) is not None:
            break
    return memory


def _parse(memory: bytes, path: Path) -> Board | None:
    if len(memory) < _HEADER_SIZE or not memory.startswith(_MAGIC):
        return None
    _, version, pid, end, started, state = _HEADER.unpack_from(memory)
    if version != _VERSION:
        raise MasterError(f"{path} was written by another release of tarry: use that one, or `tarry restart`")
    if not _HEADER_SIZE <= end <= len(memory) or state >= len(_STATES):
        return None
    children = [_child_status(memory, at, cells) for at, cells in _slots(memory, end)]
    return Board(pid, _STATES[state], started, children, _last_status(memory) or MasterStatus())


def _slots(memory: Buffer, end: int) -> Iterator[tuple[int, int]]:
    """Yields the offset and cell count of each slot that is or was used."""
    at = _HEADER_SIZE
    while at + _SLOT_SIZE <= end:
        (cells,) = _CELLS.unpack_from(memory, at + _CELLS_AT)
        following = at + _SLOT_SIZE + cells * _CELL_SIZE
        if following > end:
            return
        if 0 < memory[at + _BOOT_AT] < len(_BOOTS):
            yield at, cells
        at = following


def _last_status(memory: bytes) -> MasterStatus | None:
    """The last status, or the one before if the last is half written. None: neither is whole."""
    last = memory[_NOTICE_NUMBER_AT] % 2
    return _decode_status(memory, last) or _decode_status(memory, 1 - last)


def _decode_status(memory: bytes, number: int) -> MasterStatus | None:
    at = _NOTICES_AT[number] + _NOTICE.size
    checksum, length = _NOTICE.unpack_from(memory, at - _NOTICE.size)
    text = memory[at : at + min(length, _MOST_NOTICE)]
    if crc32(text) != checksum:
        return None
    try:
        return msgspec.json.decode(text, type=MasterStatus)
    except msgspec.DecodeError:
        return None


def _child_status(memory: bytes, at: int, cells: int) -> ChildStatus:
    role, pool, number, generation, _, started = _SEAT.unpack_from(memory, at)
    processed, failed = _COUNTS.unpack_from(memory, at + _COUNTS_AT)
    rss, beat = _BEAT.unpack_from(memory, at + _BEAT_AT)
    now = monotonic()
    found = (_cell(memory, at + _SLOT_SIZE + n * _CELL_SIZE) for n in range(cells))
    return ChildStatus(
        role=_decode_text(role),
        pool=_decode_text(pool),
        number=number,
        generation=generation,
        pid=_PID.unpack_from(memory, at + _PID_AT)[0],
        boot=_BOOTS[memory[at + _BOOT_AT]],
        owner=_decode_text(_OWNER.unpack_from(memory, at + _OWNER_AT)[0]),
        started=started,
        processed=processed,
        failed=failed,
        rss=rss,
        heartbeat=max(0.0, now - beat) if beat else -1.0,
        last_exit=_decode_text(_LAST_EXIT.unpack_from(memory, at + _LAST_EXIT_AT)[0]),
        running=[_running(cell, now) for cell in found if cell],
    )


def _running(cell: JobCell, now: float) -> BoardJob:
    return BoardJob(str(UUID(bytes=cell.id)), cell.task, max(0.0, now - cell.since), cell.epoch)


def _cell(memory: Buffer, at: int) -> JobCell | None:
    id, epoch, since, kill_at, task, reason, thread = _CELL.unpack_from(memory, at)
    return None if id == _NO_JOB else JobCell(id, epoch, since, kill_at, _decode_text(task), thread, reason)


def _steady_cell(memory: Buffer, at: int) -> JobCell | None:
    """Reads the cell until two reads are equal: one read may see the halves of two jobs."""
    for _ in range(5):
        cell = _cell(memory, at)
        if cell == _cell(memory, at):
            return cell
    return None


def _decode_text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode("utf-8", "ignore")
