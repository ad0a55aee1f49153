"""The scoreboard, as the master writes it; and where its file is."""

import contextlib
import mmap
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from time import time
from zlib import crc32

from tarry import files, platform
from tarry.errors import MasterError
from tarry.model.killing import NOT_WANTED
from tarry.runtime.board import layout
from tarry.runtime.board.layout import CELL_SIZE, HEADER_SIZE, SLOT_SIZE
from tarry.runtime.board.master_status import MasterStatus, encode_within
from tarry.runtime.board.slot import BoardSlot

# A new board has room for so many times the first processes: each may be replaced, and a reload may add more. Beyond
# that the board grows.
_SPARE = 2


DRAFT, ASIDE = ".new", ".old"
"""What the name of a board ends in while its master is to take the place of another; and after that, while the other
only waits for its last processes, with the other's pid behind it: there may be several."""


class Scoreboard:
    """The master's side: creates the file, allocates slots, writes the state."""

    def __init__(self, path: Path, cells: Iterable[int] = ()) -> None:
        """Creates a new file in place of an old one. cells: the cell counts of the first slots, so that there is room
        for them. MasterError: the disk has no room."""
        self._path = path
        self._free: list[BoardSlot] = []
        size = HEADER_SIZE + _SPARE * sum(SLOT_SIZE + count * CELL_SIZE for count in cells)
        # A new file: children of a former master still write to the old one.
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            self._memory = _map_file(draft, size, os.O_CREAT | os.O_TRUNC)
            layout.HEADER.write(self._memory, 0, layout.MAGIC, layout.VERSION, os.getpid(), HEADER_SIZE, time(), 0)
            self.publish(MasterStatus())
            # Last, so that no reader finds a board without a header or status.
            os.replace(draft, path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            why = f"{path} cannot be written ({error.strerror}): set master.pid_file to a place that can"
            raise MasterError(why) from None

    def allocate(self, cells: int) -> BoardSlot:
        """An empty slot with at least so many cells. OSError: the disk has no room for another."""
        fitting = [slot for slot in self._free if slot.size >= cells]
        if fitting:
            # The smallest one that fits: a role with more cells may need a larger one.
            slot = min(fitting, key=lambda free: free.size)
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
        self._memory[layout.STATE_AT] = layout.STATES.index(state)

    def publish(self, status: MasterStatus) -> None:
        """Writes the status for readers; texts that are too long are cut."""
        text = encode_within(status, layout.MAX_STATUS)
        other = 1 - self._memory[layout.STATUS_NUMBER_AT]
        start = layout.STATUS_COPIES_AT[other]
        # This copy is not the current one. The number below makes it current once it is whole.
        text_at = start + layout.STATUS_TEXT_AT
        self._memory[text_at : text_at + len(text)] = text
        layout.STATUS.write(self._memory, start, crc32(text), len(text))
        self._memory[layout.STATUS_NUMBER_AT] = other

    def move_to(self, path: Path) -> None:
        """Takes the place of the file at that path. OSError."""
        os.replace(self._path, path)
        self._path = path

    def step_aside(self) -> None:
        """Another board is to take the place of this one, which stays beside it until it is removed."""
        aside = aside_path(self._path, os.getpid())
        # Where somebody has removed it, or a file cannot have two names, this one is seen no more.
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
            # A second name: readers find one of the two boards at every moment.
            os.link(self._path, aside)
        self._path = aside

    def remove(self) -> None:
        """Removes the file, at a clean end."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        self._memory.close()

    def _append_slot(self, cells: int) -> BoardSlot:
        (at,) = layout.END.read(self._memory)
        end = at + SLOT_SIZE + cells * CELL_SIZE
        if end > len(self._memory):
            # A child keeps its shorter mapping: its own slot is in it.
            # Twice the need, so that it grows seldom.
            self._memory = _map_file(self._path, 2 * end, 0)
        slot = BoardSlot(self._memory, at, cells)
        slot.clear()
        # Last, so that no reader finds a slot that is not cleared.
        layout.END.write(self._memory, 0, end)
        return slot


def _map_file(path: Path, size: int, flags: int) -> mmap.mmap:
    """Maps the file with this size."""
    fd = files.open_private(path, os.O_RDWR | flags)
    try:
        platform.allocate(fd, size)
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)


def board_path(pid_file: Path) -> Path:
    """The path of the scoreboard of the master with that pid file."""
    return pid_file.with_name(pid_file.name + ".board")


def aside_path(board: Path, pid: int) -> Path:
    """The path of that scoreboard once its master, with that pid, only waits for its last processes."""
    return board.with_name(f"{board.name}{ASIDE}.{pid}")


def set_kill_time(path: Path, owner: str, id: bytes, epoch: int, kill_at: float, reason: int = NOT_WANTED) -> bool:
    """If that owner still runs that attempt, its process is killed from then on (monotonic seconds; an earlier time
    stands). Any process may call it. False: the attempt does not run, or the board cannot be written."""
    try:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            slots = [BoardSlot(memory, at, cells) for at, cells in layout.iter_slots(memory, *layout.END.read(memory))]
            return any(_set_kill_time(slot, id, epoch, kill_at, reason) for slot in slots if slot.owner() == owner)
    # The file may be gone, empty, or no scoreboard.
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
