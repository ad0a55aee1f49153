"""Reads rows from the pages of a database file, without the trees that lead to them.

Where the first page of a table is lost, SQLite finds none of its rows, though all its other pages are there. The format
is that of https://sqlite.org/fileformat2.html.
"""

import os
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from tarry.platform import read_at

TABLE_LEAF, INDEX_LEAF, TABLE_NODE, INDEX_NODE = 0x0D, 0x0A, 0x05, 0x02
_NODES = (TABLE_NODE, INDEX_NODE)
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""The length of an integer, by its type in a record."""

RowValues = tuple[Any, ...]


class PageRow(NamedTuple):
    """A record of a table or index. number: its rowid; 0 in an index and in a table without rowids."""

    number: int
    values: RowValues


class Pages:
    """The pages of the database behind this descriptor. Pages are numbered from 1."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        header = read_at(descriptor, 100, 0)
        size = int.from_bytes(header[16:18], "big")
        # 65536 does not fit into 16 bits: SQLite writes 1 for it.
        self.size = 65536 if size == 1 else size
        self._usable = self.size - header[20]
        self.count = os.fstat(descriptor).st_size // self.size
        self.user_version, self.application = struct.unpack(">I4xI", header[60:72])
        self._first_free = int.from_bytes(header[32:36], "big")

    def page(self, number: int) -> bytes:
        """The content of a page."""
        return read_at(self._descriptor, self.size, (number - 1) * self.size).ljust(self.size, b"\0")

    def free(self) -> set[int]:
        """The pages that are not in use. They hold rows that were deleted or moved."""
        found, trunk = set[int](), self._first_free
        while 0 < trunk <= self.count and trunk not in found:
            page = self.page(trunk)
            following, leaves = struct.unpack(">II", page[:8])
            leaves = min(leaves, self.size // 4 - 2)
            found |= {trunk, *struct.unpack(f">{leaves}I", page[8 : 8 + 4 * leaves])}
            trunk = following
        return found

    def tree(self, root: int) -> set[int]:
        """The pages that a tree leads to, as far as it can be followed."""
        found, todo = set[int](), [root]
        while todo:
            number = todo.pop()
            if not 0 < number <= self.count or number in found:
                continue
            found.add(number)
            page = self.page(number)
            start = _start(number)
            if page[start] in _NODES:
                todo += [int.from_bytes(page[at : at + 4], "big") for at in _cells(page, start, 12)]
                todo.append(int.from_bytes(page[start + 8 : start + 12], "big"))
        return found

    def kind(self, number: int) -> int:
        """TABLE_LEAF, INDEX_LEAF and so on; any other number for pages that are no part of a tree."""
        return self.page(number)[_start(number)]

    def rows(self, number: int) -> Iterator[PageRow]:
        """The records in a page; those that cannot be read are left out."""
        page, start = self.page(number), _start(number)
        kind = page[start]
        if kind not in (TABLE_LEAF, INDEX_LEAF, INDEX_NODE):
            return
        for at in _cells(page, start, 12 if kind == INDEX_NODE else 8):
            try:
                yield self._row(page, at, kind)
            except (ValueError, IndexError, struct.error):
                continue

    def _row(self, page: bytes, at: int, kind: int) -> PageRow:
        at += 4 if kind == INDEX_NODE else 0
        length, at = _varint(page, at)
        number, at = _varint(page, at) if kind == TABLE_LEAF else (0, at)
        return PageRow(number, _record(self._payload(page, at, length, kind)))

    def _payload(self, page: bytes, at: int, length: int, kind: int) -> bytes:
        usable = self._usable
        most = usable - 35 if kind == TABLE_LEAF else (usable - 12) * 64 // 255 - 23
        if length <= most:
            return _exactly(page[at : at + length], length)
        if length > self.count * usable:
            raise ValueError("longer than the file")
        least = (usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (usable - 4)
        local = local if local <= most else least
        following = int.from_bytes(page[at + local : at + local + 4], "big")
        return self._overflow(page[at : at + local], following, length)

    def _overflow(self, content: bytes, following: int, length: int) -> bytes:
        parts, left = [content], length - len(content)
        while left > 0 and 0 < following <= self.count:
            page = self.page(following)
            parts.append(page[4 : 4 + min(left, self._usable - 4)])
            left -= len(parts[-1])
            following = int.from_bytes(page[:4], "big")
        return _exactly(b"".join(parts), length)


def _start(number: int) -> int:
    # The first page begins with the header of the file.
    return 100 if number == 1 else 0


def _cells(page: bytes, start: int, header: int) -> Iterator[int]:
    """Where the cells of a page begin."""
    count = int.from_bytes(page[start + 3 : start + 5], "big")
    for place in range(start + header, min(start + header + 2 * count, len(page) - 1), 2):
        at = int.from_bytes(page[place : place + 2], "big")
        if at < len(page) - 4:
            yield at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, and where it ends."""
    value = 0
    for place in range(at, at + 8):
        value = value << 7 | content[place] & 0x7F
        if content[place] < 0x80:
            return value, place + 1
    value = value << 8 | content[at + 8]
    return value - (1 << 64) if value >> 63 else value, at + 9


def _record(payload: bytes) -> RowValues:
    length, at = _varint(payload, 0)
    kinds = []
    while at < length:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    values = []
    for kind in kinds:
        value, at = _value(payload, at, kind)
        values.append(value)
    return tuple(values)


def _value(payload: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind == 0:
        return None, at
    if kind in (8, 9):
        return kind - 8, at
    if kind in _INTEGERS:
        end = at + _INTEGERS[kind]
        return int.from_bytes(_exactly(payload[at:end], end - at), "big", signed=True), end
    if kind < 12:
        raise ValueError("tarry stores no such values")
    end = at + (kind - 12) // 2
    content = _exactly(payload[at:end], end - at)
    return content.decode() if kind & 1 else content, end


def _exactly(content: bytes, length: int) -> bytes:
    if len(content) != length:
        raise ValueError("cut off")
    return content
