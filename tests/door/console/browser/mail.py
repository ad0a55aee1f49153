"""A mail server that keeps what it gets, or refuses it."""

import re
import socketserver
import threading
from typing import Any


class MailServer:
    """Takes mail by SMTP on a port of this host. refused: what it answers each recipient; empty: it takes the mail."""

    def __init__(self) -> None:
        self.refused = ""
        self.recipients: list[str] = []
        """Of each mail that it took."""
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), self._converse)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def _converse(self, connection: Any, *_: object) -> None:
        with connection.makefile("rb") as lines:
            connection.sendall(b"220 mail.example.org\r\n")
            recipient = ""
            while line := lines.readline().decode().strip():
                verb = line[:4].upper()
                answer = "250 well"
                if verb == "RCPT":
                    recipient, answer = re.findall("<(.*)>", line)[0], self.refused or answer
                elif verb == "DATA":
                    connection.sendall(b"354 go on\r\n")
                    while lines.readline() not in (b".\r\n", b""):
                        pass
                    self.recipients.append(recipient)
                elif verb == "QUIT":
                    answer = "221 bye"
                connection.sendall(f"{answer}\r\n".encode())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
