"""pgbouncer, a pooler before PostgreSQL: with it a session lasts for one transaction."""

import contextlib
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from tests.servers.postgres import PostgresServer
from tests.servers.server import Server, program

_SETTINGS = """[databases]
* = host=127.0.0.1 port={server} user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
"""


class PgbouncerServer(Server):
    """One in transaction mode, with its defaults besides: so it refuses settings of a session."""

    # It does not run as root.
    account = "postgres"
    parting = signal.SIGINT

    def __init__(self, directory: Path, server: PostgresServer) -> None:
        super().__init__(directory)
        self._server = server
        settings = directory / "pgbouncer.ini"
        settings.write_text(_SETTINGS.format(server=server.port, port=self.port))
        self.owned(settings)

    def command(self) -> Sequence[str]:
        return [program("pgbouncer"), "--quiet", "pgbouncer.ini"]

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def before(self, url: str) -> str:
        """The URL of a store of the server, by way of this pooler."""
        return url.replace(f":{self._server.port}/", f":{self.port}/")
