"""One child's part of the scoreboard."""

import mmap
import struct
from time import monotonic, time

from tarry.errors import MasterError
from tarry.model.killing import TIMEOUT
from tarry.runtime.board import layout
from tarry.runtime.board.layout import CELL_SIZE, SLOT_SIZE, JobCell, decode_text

# The offsets in this module follow from layout.CELL: 32 the kill time, 119 the reason, 120 the thread.
_pack_id = struct.Struct("=16s").pack_into
_pack_body = struct.Struct("=Qdd79sB").pack_into
_pack_moment = struct.Struct("=d").pack_into
_pack_reason = struct.Struct("=B").pack_into
_pack_thread = struct.Struct("=Q").pack_into


class BoardSlot:
    """One child's part of the board. The child writes it, the master only at start and end. A cell has one writer."""

    __slots__ = ("_at", "_cells_at", "_memory", "size")

    def __init__(self, memory: mmap.mmap, at: int, cells: int) -> None:
        self._memory, self._at = memory, at
        self.size = cells
        """How many cells it has."""
        self._cells_at = at + SLOT_SIZE

    def on(self, cell: int, id: bytes, epoch: int, task: bytes, kill_at: float, reason: int = TIMEOUT) -> None:
        """The cell's thread begins a job. kill_at: monotonic seconds from which on the master kills us; 0: never."""
        # The id is cleared first and written last, so a half-written cell shows no job.
        at, memory = self._cells_at + cell * CELL_SIZE, self._memory
        _pack_id(memory, at, b"")
        _pack_body(memory, at + 16, epoch, monotonic(), kill_at, task, reason)
        _pack_id(memory, at, id)

    def off(self, cell: int) -> None:
        """The cell's thread has ended its job."""
        _pack_id(self._memory, self._cells_at + cell * CELL_SIZE, b"")

    def thread(self, cell: int, ident: int) -> None:
        """Sets the cell's thread: `threading.get_ident()`."""
        _pack_thread(self._memory, self._cells_at + cell * CELL_SIZE + 120, ident)

    def limit(self, cell: int, kill_at: float, reason: int) -> None:
        """Sets another kill time for the job that the cell's thread runs."""
        at = self._cells_at + cell * CELL_SIZE
        # The reason first: the master kills by the moment, and then reads the reason.
        _pack_reason(self._memory, at + 119, reason)
        _pack_moment(self._memory, at + 32, kill_at)

    def count(self, processed: int, failed: int) -> None:
        """Sets the totals since the process began."""
        layout.COUNTS.write(self._memory, self._at, processed, failed)

    def beat(self, rss: int) -> None:
        """A sign of life, with the bytes of memory in use."""
        layout.BEAT.write(self._memory, self._at, rss, monotonic())

    def load(self, fill: float, held: int) -> None:
        """From now on this part of the capacity is in use, 0 to 1, and the process holds so many jobs."""
        busy, before, since, held_before = layout.LOAD.read(self._memory, self._at)
        if (fill, held) != (before, held_before):
            now = monotonic()
            layout.LOAD.write(self._memory, self._at, busy + before * (now - since), fill, now, held)

    def load_figures(self, now: float) -> tuple[float, float, int]:
        """Seconds of full use since the process began, the part in use now, and how many jobs it holds."""
        busy, fill, since, held = layout.LOAD.read(self._memory, self._at)
        return busy + fill * max(0.0, now - since), fill, held

    def set_owner(self, owner: str) -> None:
        """Sets the name under which the process claims jobs; the keeper gets it if the process dies. At most 120 bytes;
        MasterError."""
        text = owner.encode()
        if len(text) > layout.MAX_OWNER:
            raise MasterError(f"owner {owner!r} is longer than {layout.MAX_OWNER} bytes: shorten the pool's name")
        layout.OWNER.write(self._memory, self._at, text)

    def owner(self) -> str:
        """The name under which it claims jobs; empty: it claims none yet."""
        return decode_text(layout.OWNER.read(self._memory, self._at)[0])

    def set_boot_state(self, state: str) -> None:
        """One of empty, starting, ready, stopping, gone."""
        self._memory[self._at + layout.BOOT_AT] = layout.BOOTS.index(state)

    def prepare(self, role: str, pool: str, number: int, generation: int) -> None:
        """Prepares the slot for a new process; how the last one ended stays."""
        last = self.last_exit()
        self.clear()
        self.set_last_exit(last)
        layout.PROCESS.write(self._memory, self._at, role.encode(), pool.encode(), number, generation, 0, time())
        self.set_boot_state(layout.STARTING)

    def set_pid(self, pid: int) -> None:
        """The process has been forked."""
        layout.PID.write(self._memory, self._at, pid)

    def mark_exited(self, why: str) -> None:
        """The process is dead. Its counts stay visible, its jobs do not."""
        self.set_last_exit(why)
        self.set_boot_state(layout.GONE)
        for cell in range(self.size):
            self.off(cell)

    def last_exit(self) -> str:
        """How the process before this one ended."""
        return decode_text(layout.LAST_EXIT.read(self._memory, self._at)[0])

    def set_last_exit(self, why: str) -> None:
        """Sets how the previous process ended, which had another slot."""
        layout.LAST_EXIT.write(self._memory, self._at, why.encode())

    def clear(self) -> None:
        """Empties the slot."""
        at, end = self._at + layout.CELLS_AT, self._cells_at + self.size * CELL_SIZE
        self._memory[self._at : at] = bytes(layout.CELLS_AT)
        # The cell count is never zero, not for an instant: readers need it to find the next slot.
        layout.CELLS.write(self._memory, self._at, self.size)
        self._memory[at + layout.CELLS_SIZE : end] = bytes(end - at - layout.CELLS_SIZE)

    def counts(self) -> tuple[int, int]:
        """Processed and failed jobs, as the process last wrote them."""
        processed, failed = layout.COUNTS.read(self._memory, self._at)
        return processed, failed

    def rss(self) -> int:
        """Bytes of memory in use, as the process last wrote them."""
        return int(layout.BEAT.read(self._memory, self._at)[0])

    def cells(self) -> list[JobCell]:
        """The running jobs. Each is read whole even while it is written."""
        return [cell for number in range(self.size) if (cell := self.cell(number)) is not None]

    def cell(self, number: int) -> JobCell | None:
        """The job in that cell; None: there is none."""
        return layout.read_steady_cell(self._memory, self._cells_at + number * CELL_SIZE)
