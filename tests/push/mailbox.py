"""A real SMTP server in a thread that accepts or refuses mails, as set."""

import email
import socket
import ssl
import threading
from collections.abc import Callable
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.servers.server import free_port

USER, PASSWORD = "ann", "hush:p@ss/word"


class Mailbox:
    """Listens on a free port of 127.0.0.1 while its block runs.

    certificate: a file with it and its key. at_once: TLS from the first byte on, not by STARTTLS. auth: only who logs
    in may send. says: the answer to a mail, in place of 250.
    """

    def __init__(
        self, certificate: Path | None = None, *, at_once: bool = False, auth: bool = False, says: str = "250 OK"
    ) -> None:
        self.says = says
        self.envelopes: list[Envelope] = []
        self.logins: list[LoginPassword] = []
        self.secure: list[bool] = []
        options: dict[str, Any] = {"ident": "test"}
        tls = _context(certificate) if certificate else None
        if tls is not None and not at_once:
            options["tls_context"] = tls
        if auth:
            options |= {"authenticator": self._authenticate, "auth_required": True, "auth_require_tls": tls is not None}
            if at_once:
                options["auth_require_tls"] = False
        self._controller = Controller(
            self, hostname="127.0.0.1", port=free_port(), ssl_context=tls if at_once else None, **options
        )
        self.scheme = "smtps" if at_once else "smtp"

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._controller.stop()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self._controller.port}"

    def mails(self) -> list[EmailMessage]:
        return [_parse(envelope) for envelope in list(self.envelopes)]

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's
        if self.says.startswith("250"):
            self.envelopes.append(envelope)
            self.secure.append(session.ssl is not None or self.scheme == "smtps")
        return self.says

    def _authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: LoginPassword
    ) -> AuthResult:
        self.logins.append(data)
        good = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=good, handled=good)


class MisbehavingServer:
    """A server that handles each connection with `conduct`, in a thread: hang, close, ..."""

    def __init__(self, conduct: Callable[[socket.socket], None]) -> None:
        self._conduct = conduct
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port = self._listening.getsockname()[1]
        self.came = threading.Event()

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listening.close()
        for connection in self._open:
            connection.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(connection)
            self.came.set()
            self._conduct(connection)


def _parse(envelope: Envelope) -> EmailMessage:
    content = envelope.content
    assert isinstance(content, bytes)
    return email.message_from_bytes(content, EmailMessage, policy=default)


def _context(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context
