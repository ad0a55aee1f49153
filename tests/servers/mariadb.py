"""MariaDB."""

from collections.abc import Sequence
from pathlib import Path

from tests.servers.server import Server, program


class MariadbServer(Server):
    """A server with the empty database `tarry`; `settings` as on its command line."""

    account = "mysql"

    def __init__(self, directory: Path, *settings: str) -> None:
        super().__init__(directory)
        self.settings = settings

    @property
    def url(self) -> str:
        """The database `tarry`, as root, without a password."""
        return f"mysql://root@127.0.0.1:{self.port}/tarry"

    def start(self) -> None:
        fresh = not (self.directory / "data").exists()
        if fresh:
            self.run(
                program("mariadb-install-db", "mysql_install_db"), "--no-defaults", f"--datadir={self.directory}/data",
                "--auth-root-authentication-method=normal", "--skip-test-db", f"--tmpdir={self.directory}",
            )  # fmt: skip
        super().start()
        if fresh:
            self.call("CREATE DATABASE tarry")

    def command(self) -> Sequence[str]:
        return [
            program("mariadbd", "mysqld"), "--no-defaults", f"--datadir={self.directory}/data", f"--port={self.port}",
            "--bind-address=127.0.0.1", f"--socket={self.directory}/sock", f"--pid-file={self.directory}/pid",
            # At its start a server removes the temporary tables of all others that use the same directory.
            f"--tmpdir={self.directory}", *self.settings,
        ]  # fmt: skip

    def answers(self) -> bool:
        try:
            self._client(program("mariadb-admin", "mysqladmin"), "ping")
        except AssertionError:
            return False
        return True

    def call(self, statement: str) -> str:
        """One statement; what it answers, unadorned."""
        return self._client(program("mariadb", "mysql"), "-N", "-B", "-e", statement).strip()

    def _client(self, tool: str, *words: str) -> str:
        return self.run(tool, "--no-defaults", "-u", "root", "-h", "127.0.0.1", "-P", str(self.port), *words)
