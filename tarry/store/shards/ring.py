"""Rendezvous hashing: which of several places a name belongs to, so that each place more takes only its own part."""

from collections.abc import Mapping
from hashlib import blake2b


class Ring:
    """Places by number, of which only the names count."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self.numbers = tuple(names)
        self._hashes = {number: blake2b(name.encode() + b"\0", digest_size=8) for number, name in names.items()}

    def place(self, name: bytes) -> int:
        """The number of the place where this belongs: of all, its hash with the name is the highest."""
        if len(self.numbers) == 1:
            return self.numbers[0]
        return max(self.numbers, key=lambda number: self._weight(number, name))

    def order(self, name: bytes) -> list[int]:
        """All of them, the place where it belongs first, then that where it would without the first, and so on."""
        return sorted(self.numbers, key=lambda number: self._weight(number, name), reverse=True)

    def _weight(self, number: int, name: bytes) -> bytes:
        digest = self._hashes[number].copy()
        digest.update(name)
        return digest.digest()
