"""The real beanstalkd, which tarry's door is compared with."""

import contextlib
import socket
from collections.abc import Sequence

from tests.servers.server import Server, program


class BeanstalkdServer(Server):
    """One server that keeps its jobs in memory."""

    def command(self) -> Sequence[str]:
        return [program("beanstalkd"), "-l", "127.0.0.1", "-p", str(self.port)]

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False
