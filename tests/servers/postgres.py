"""PostgreSQL."""

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from tests.servers.server import Server, program

FOLDERS = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]


class PostgresServer(Server):
    """A cluster of its own; `settings` as in postgresql.conf ("fsync=off")."""

    account = "postgres"
    parting = signal.SIGINT

    def __init__(self, directory: Path, *settings: str) -> None:
        super().__init__(directory)
        self.settings = settings

    @property
    def url(self) -> str:
        """The database `postgres`, as its superuser, without a password."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        if not (self.directory / "PG_VERSION").exists():
            self.directory.chmod(0o700)
            self.run(
                program("initdb", among=FOLDERS), "-D", str(self.directory), "-A", "trust", "-U", "postgres", "-E",
                "UTF8", "--locale=C.UTF-8", "--no-sync",
            )  # fmt: skip
        super().start()

    def command(self) -> Sequence[str]:
        own = ["listen_addresses=127.0.0.1", f"unix_socket_directories={self.directory}", *self.settings]
        flags = [word for setting in own for word in ("-c", setting)]
        return [program("postgres", among=FOLDERS), "-D", str(self.directory), "-p", str(self.port), *flags]

    def answers(self) -> bool:
        try:
            self.run(program("pg_isready", among=FOLDERS), "-h", "127.0.0.1", "-p", str(self.port))
        except AssertionError:
            return False
        return True

    def _signal(self, number: int) -> None:
        """Each backend leads a group of its own, so the group of the first is not all of them."""
        assert self._process is not None
        whole = number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT) and self._process.poll() is None
        started = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        backends = started.read_text().split() if whole else []
        super()._signal(number)
        for backend in backends:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(backend), number)

    def call(self, statement: str) -> str:
        """One statement in the database `postgres`; what it answers, unadorned."""
        return self.run(program("psql", among=FOLDERS), "-XAtqc", statement, self.url).strip()
