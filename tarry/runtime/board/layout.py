"""The layout of the scoreboard's file: a header, then a slot for each child, each followed by its cells.

A cell shows which job one thread of the child runs.
"""

import mmap
import struct
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from tarry.model.killing import TIMEOUT, text_of

STARTING, SERVING, STOPPING, QUITTING, RESTING = "starting", "serving", "stopping", "quitting", "resting"
EMPTY, READY, GONE = "empty", "ready", "gone"

# The board holds indexes into these two: another order needs a new VERSION.
STATES = (STARTING, SERVING, STOPPING, QUITTING, RESTING)
BOOTS = (EMPTY, STARTING, READY, STOPPING, GONE)

Buffer = mmap.mmap | bytes


class Field:
    """Values that change together, at a fixed place after the start of the header, of a status or of a slot."""

    __slots__ = ("_end", "_offset", "_pack", "_unpack")

    def __init__(self, offset: int, format: str) -> None:
        fields = struct.Struct("=" + format)
        self._offset, self._end = offset, offset + fields.size
        self._pack, self._unpack = fields.pack, fields.unpack_from

    def read(self, memory: Buffer, start: int = 0) -> tuple[Any, ...]:
        """The values; a text is bytes, padded with zeros."""
        return self._unpack(memory, start + self._offset)

    def write(self, memory: mmap.mmap, start: int, *values: Any) -> None:
        """Sets the values."""
        # In one piece: `pack_into` writes zeros first, and a reader could see them.
        memory[start + self._offset : start + self._end] = self._pack(*values)


MAX_OWNER = 120
"""Bytes."""
MAGIC, VERSION = b"tarryBRD", 4
HEADER_SIZE = 16384
HEADER = Field(0, "8sIIQdB")
"""Magic, version, pid of the master, end of the slots, start in seconds since the epoch, index in STATES."""
END = Field(16, "Q")
STATE_AT = 32
STATUS_NUMBER_AT = 48
# A reader may find one copy half written. It may stay so if the master was stopped in the middle.
STATUS_COPIES_AT = (64, HEADER_SIZE // 2)
"""Two copies of the master's status, as JSON with a checksum, written in turns."""
STATUS = Field(0, "II")
"""Checksum and length. The text follows at STATUS_TEXT_AT."""
STATUS_TEXT_AT = 8
MAX_STATUS = HEADER_SIZE // 2 - 64 - STATUS_TEXT_AT

# The fields of a slot.
PROCESS = Field(0, "16s64sIIId")
"""Role, pool, number, generation, 0, start in seconds since the epoch."""
PID = Field(88, "I")
LAST_EXIT = Field(104, "120s")
BOOT_AT = 224
OWNER = Field(232, f"{MAX_OWNER}s")
COUNTS = Field(352, "QQ")
"""Processed and failed jobs."""
BEAT = Field(368, "Qd")
"""Bytes of memory in use, and when that was written."""
CELLS_AT = 384
CELLS_SIZE = 4
CELLS = Field(CELLS_AT, "I")
LOAD = Field(392, "dddI")
"""Seconds of full use up to a moment, the part in use since then, that moment, and how many jobs are held."""
SLOT_SIZE = 512

CELL = struct.Struct("=16sQdd79sBQ")
CELL_SIZE = 128
NO_JOB = bytes(16)


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


def iter_slots(memory: Buffer, end: int) -> Iterator[tuple[int, int]]:
    """Yields the offset and cell count of each slot that is or was used."""
    at = HEADER_SIZE
    while at + SLOT_SIZE <= end:
        (cells,) = CELLS.read(memory, at)
        following = at + SLOT_SIZE + cells * CELL_SIZE
        # Garbage: no slot reaches beyond the end.
        if following > end:
            return
        if 0 < memory[at + BOOT_AT] < len(BOOTS):
            yield at, cells
        at = following


def read_cell(memory: Buffer, at: int) -> JobCell | None:
    """The job in the cell at that offset; None: there is none."""
    id, epoch, since, kill_at, task, reason, thread = CELL.unpack_from(memory, at)
    return None if id == NO_JOB else JobCell(id, epoch, since, kill_at, decode_text(task), thread, reason)


def read_steady_cell(memory: Buffer, at: int) -> JobCell | None:
    """Reads the cell until two reads are equal; None: there is no job, or the reads differ."""
    # The child writes meanwhile: a single read may see the halves of two jobs.
    for _ in range(5):
        cell = read_cell(memory, at)
        if cell == read_cell(memory, at):
            return cell
    return None


def decode_text(padded: bytes) -> str:
    """The text of a field. A character that was cut at its end is left out."""
    return padded.rstrip(b"\0").decode("utf-8", "ignore")
