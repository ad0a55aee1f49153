"""A mail server that keeps what it gets, or refuses it."""

import re
import socketserver
import threading
from io import BufferedIOBase


class MailServer:
    """Takes mail by SMTP on a port of this host. refused: what it answers each recipient; empty: it takes the mail."""

    def __init__(self) -> None:
        self.refused = ""
        self.recipients: list[str] = []
        """Of each mail that it took."""
        converse = self._converse

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                converse(self.rfile, self.wfile)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def _converse(self, lines: BufferedIOBase, out: BufferedIOBase) -> None:
        out.write(b"220 mail.example.org\r\n")
        recipient = ""
        while line := lines.readline().decode().strip():
            verb, answer = line[:4].upper(), "250 well"
            if verb == "RCPT":
                recipient, answer = re.findall("<(.*)>", line)[0], self.refused or answer
            elif verb == "DATA":
                out.write(b"354 go on\r\n")
                while lines.readline() not in (b".\r\n", b""):
                    pass
                self.recipients.append(recipient)
            elif verb == "QUIT":
                answer = "221 bye"
            out.write(f"{answer}\r\n".encode())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
