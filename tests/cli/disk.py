"""A small disk of one's own, to be filled up or made read-only. Only root may mount one."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

MB = 2**20


class Disk:
    def __init__(self, path: Path, size: int) -> None:
        """Skips the test where nothing may be mounted."""
        self.path = path
        path.mkdir()
        if os.geteuid() != 0:
            pytest.skip("only root may mount a tmpfs")
        said = _ran("mount", "-t", "tmpfs", "-o", f"size={size}", "tarry-test", str(path))
        if said:
            pytest.skip(f"no tmpfs can be mounted here: {said}")

    def read_only(self) -> None:
        assert not _ran("mount", "-o", "remount,ro", str(self.path))

    @property
    def free(self) -> int:
        room = os.statvfs(self.path)
        return room.f_bavail * room.f_frsize

    def fill(self, but: int = 0) -> Path:
        """A file that takes all the room but so many bytes."""
        filler = self.path / "filler"
        with filler.open("ab") as file, contextlib.suppress(OSError):
            while self.free > but:
                file.write(bytes(min(MB, self.free - but)))
                file.flush()
        return filler

    def close(self) -> None:
        _ran("umount", "--lazy", str(self.path))


def _ran(*words: str) -> str:
    """What a command that failed said; empty if it did not."""
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    return "" if ended.returncode == 0 else ended.stderr.strip() or f"status {ended.returncode}"
