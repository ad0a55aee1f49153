"""Reading the scoreboard. This needs no answer from the master: it works also while the master is stopped or dead."""

from pathlib import Path
from time import monotonic
from uuid import UUID
from zlib import crc32

import msgspec
from msgspec import Struct

from tarry.errors import MasterError
from tarry.model.checks.decoders import decode_json
from tarry.runtime.board import layout
from tarry.runtime.board.layout import CELL_SIZE, HEADER_SIZE, SLOT_SIZE, JobCell, decode_text, read_cell
from tarry.runtime.board.master_status import MasterStatus

SERVER = "server"
"""The role of processes that accept connections at the master's sockets."""


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
    """Jobs that ended here, or requests that a server answered."""
    failed: int
    """Attempts that failed, also the last ones of jobs that are dead, or connections that a server refused."""
    rss: int
    """Bytes."""
    heartbeat: float
    """Seconds since its last sign of life; -1: there was none yet."""
    last_exit: str
    """How the previous process in this place ended; empty: there was none."""
    running: list[BoardJob]
    held: int = 0
    """How many jobs a worker has claimed, or how many connections a server has."""

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


def process_name(role: str, pool: str, number: int) -> str:
    """`worker default.1`, `server 1`; a role with one process: `keeper`."""
    if pool:
        return f"{role} {pool}.{number}"
    return f"{role} {number}" if role == SERVER else role


def read(path: Path) -> Board | None:
    """The scoreboard now; None: there is none, or it is no scoreboard. MasterError: it is of another release."""
    try:
        memory = _read_steady(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise MasterError(f"{path} cannot be read ({error.strerror}): run this as the master's user") from None
    return _parse(memory, path)


def _read_steady(path: Path) -> bytes:
    """Reads the file, again if no copy of the master's status was whole."""
    for _ in range(5):
        memory = path.read_bytes()
        if len(memory) < HEADER_SIZE or _last_status(memory) is not None:
            break
    return memory


def _parse(memory: bytes, path: Path) -> Board | None:
    if len(memory) < HEADER_SIZE or not memory.startswith(layout.MAGIC):
        return None
    _, version, pid, end, started, state = layout.HEADER.read(memory)
    if version != layout.VERSION:
        raise MasterError(f"{path} was written by another release of tarry: use that one, or `tarry restart`")
    # The file is truncated, or garbage.
    if not HEADER_SIZE <= end <= len(memory) or state >= len(layout.STATES):
        return None
    children = [_child_status(memory, at, cells) for at, cells in layout.iter_slots(memory, end)]
    return Board(pid, layout.STATES[state], started, children, _last_status(memory) or MasterStatus())


def _last_status(memory: bytes) -> MasterStatus | None:
    """The last status, or the one before if the last is half written. None: neither is whole."""
    last = memory[layout.STATUS_NUMBER_AT] % 2
    return _decode_status(memory, last) or _decode_status(memory, 1 - last)


def _decode_status(memory: bytes, number: int) -> MasterStatus | None:
    start = layout.STATUS_COPIES_AT[number]
    checksum, length = layout.STATUS.read(memory, start)
    at = start + layout.STATUS_TEXT_AT
    # The length may be half written, too.
    text = memory[at : at + min(length, layout.MAX_STATUS)]
    if crc32(text) != checksum:
        return None
    try:
        return decode_json(text, MasterStatus)
    except msgspec.DecodeError:
        return None


def _child_status(memory: bytes, at: int, cells: int) -> ChildStatus:
    role, pool, number, generation, _, started = layout.PROCESS.read(memory, at)
    processed, failed = layout.COUNTS.read(memory, at)
    rss, beat = layout.BEAT.read(memory, at)
    now = monotonic()
    found = (read_cell(memory, at + SLOT_SIZE + n * CELL_SIZE) for n in range(cells))
    return ChildStatus(
        role=decode_text(role),
        pool=decode_text(pool),
        number=number,
        generation=generation,
        pid=layout.PID.read(memory, at)[0],
        boot=layout.BOOTS[memory[at + layout.BOOT_AT]],
        owner=decode_text(layout.OWNER.read(memory, at)[0]),
        started=started,
        processed=processed,
        failed=failed,
        rss=rss,
        heartbeat=max(0.0, now - beat) if beat else -1.0,
        last_exit=decode_text(layout.LAST_EXIT.read(memory, at)[0]),
        running=[_board_job(cell, now) for cell in found if cell],
        held=layout.LOAD.read(memory, at)[3],
    )


def _board_job(cell: JobCell, now: float) -> BoardJob:
    return BoardJob(str(UUID(bytes=cell.id)), cell.task, max(0.0, now - cell.since), cell.epoch)
