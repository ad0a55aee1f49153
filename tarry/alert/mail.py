"""Mail over SMTP: one message to one address."""

import contextlib
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from email.policy import SMTP as POLICY
from email.utils import formatdate, make_msgid
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from msgspec import Struct

from tarry.alert.alert_errors import SendError
from tarry.alert.alert_message import Message
from tarry.alert.condition import clean_line
from tarry.errors import ConfigError

STEP, TOTAL = 15.0, 60.0
"""Time limits in seconds for one step of an SMTP session, and for the whole session."""
_EXAMPLE = 'write "smtp://user:password@host:587" or "smtps://user:password@host:465"'
_READY = 220
_PORTS = {"smtp": 587, "smtps": 465}


class MailServer(Struct, frozen=True):
    """The server that takes our mails."""

    host: str
    port: int
    is_implicit_tls: bool
    """TLS from the first byte; else after STARTTLS, if the server offers it."""
    user: str = ""
    password: str = ""
    ca: str = ""
    """A file with certificates that are trusted besides the system's."""

    @property
    def is_local(self) -> bool:
        """The server is on this host."""
        # Then nobody else can read the connection.
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __repr__(self) -> str:
        # Without the password: this text may come into a log.
        return f"<MailServer {self.host}:{self.port}>"


def parse_server(url: str) -> MailServer:
    """Parses `smtp://user:password@host:port?ca=/path` or `smtps://`; ConfigError, which does not contain the URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # The error of urlsplit may show the URL, which has a password in it.
        raise ConfigError(f"it is no URL; {_EXAMPLE}") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.scheme not in _PORTS or not parts.hostname or port == 0 or parts.path not in ("", "/") or parts.fragment:
        raise ConfigError(f"it is no URL of a mail server; {_EXAMPLE}")
    if options.keys() - {"ca"} or options.get("ca") == "":
        raise ConfigError("after the ? there may only be ca=/path, certificates to trust besides the system's")
    return _build_server(parts, port or _PORTS[parts.scheme], options.get("ca", ""))


def _build_server(parts: SplitResult, port: int, ca: str) -> MailServer:
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if bool(user) != bool(password):
        raise ConfigError(f"user and password go together; {_EXAMPLE}")
    assert parts.hostname is not None
    return MailServer(parts.hostname, port, parts.scheme == "smtps", user, password, ca)


def build_mail(message: Message, sender: str, to: str, host: str) -> EmailMessage:
    """The message as a mail; ValueError for an address that is not valid."""
    mail = EmailMessage(POLICY)
    mail["From"], mail["To"], mail["Subject"] = sender, to, message.subject
    mail["Date"], mail["Message-ID"] = formatdate(), make_msgid(message.id, _domain(host))
    # Keeps out-of-office programs from answering (RFC 3834).
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.text)
    return mail


def _domain(host: str) -> str:
    return "".join(sign for sign in host if sign.isascii() and (sign.isalnum() or sign in ".-")) or "localhost"


def default_sender(host: str) -> str:
    """The sender address where the settings name none."""
    return f"tarry@{_domain(host)}"


def send(to: MailServer, mail: EmailMessage) -> None:
    """Returns once the server has accepted the mail; raises SendError if it has not, within a minute."""
    _run_session(to, lambda smtp: smtp.send_message(mail))


def check_server(to: MailServer) -> None:
    """Returns if the server would accept mail from us; sends none. SendError."""
    _run_session(to, lambda smtp: smtp.noop())


def _run_session(to: MailServer, command: Callable[[smtplib.SMTP], object]) -> None:
    try:
        with _connect(to) as smtp:
            _secure(smtp, to)
            command(smtp)
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error.decode("utf-8", "replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        raise SendError(f"{to.host}:{to.port} answered {error.smtp_code} {clean_line(said, 200)}") from None
    except smtplib.SMTPRecipientsRefused as error:
        code, text = next(iter(error.recipients.values()))
        raise SendError(
            f"{to.host}:{to.port} answered {code} {clean_line(text.decode('utf-8', 'replace'), 200)}"
        ) from None
    except (smtplib.SMTPException, OSError, ValueError) as error:
        raise SendError(f"{to.host}:{to.port}: {clean_line(str(error) or type(error).__name__, 200)}") from None


@contextlib.contextmanager
def _connect(to: MailServer) -> Iterator[smtplib.SMTP]:
    smtp, started = _new_smtp(to), time.monotonic()
    # The limit also covers the connect, so that a slow server cannot hold us longer.
    watchdog = threading.Timer(TOTAL, lambda: _abort(smtp))
    watchdog.daemon = True
    watchdog.start()
    try:
        code, said = smtp.connect(to.host, to.port)
        # Until it is connected there is no socket, and the watchdog can do nothing.
        if time.monotonic() - started > TOTAL:
            raise TimeoutError(f"no connection within {TOTAL:g} s")
        # smtplib checks this only when its constructor connects.
        if code != _READY:
            raise smtplib.SMTPConnectError(code, said)
        yield smtp
        # The mail is accepted by now: an error of QUIT does not matter.
        with contextlib.suppress(smtplib.SMTPException, OSError):
            smtp.quit()
    finally:
        watchdog.cancel()
        smtp.close()


def _new_smtp(to: MailServer) -> smtplib.SMTP:
    """A client that is not connected yet."""
    # Without a name, smtplib looks up the full name of this host, which may take long.
    name = _domain(socket.gethostname())
    if to.is_implicit_tls:
        smtp: smtplib.SMTP = smtplib.SMTP_SSL(local_hostname=name, timeout=STEP, context=_context(to))
    else:
        smtp = smtplib.SMTP(local_hostname=name, timeout=STEP)
    # The name that the certificate must match: smtplib only sets it when the constructor connects.
    vars(smtp)["_host"] = to.host
    return smtp


def _abort(smtp: smtplib.SMTP) -> None:
    with contextlib.suppress(OSError, AttributeError):
        if smtp.sock is None:
            return
        # Unlike close, this also ends the wait of the thread that uses the socket.
        smtp.sock.shutdown(socket.SHUT_RDWR)


def _secure(smtp: smtplib.SMTP, to: MailServer) -> None:
    smtp.ehlo_or_helo_if_needed()
    secure = to.is_implicit_tls
    if not secure and smtp.has_extn("starttls"):
        smtp.starttls(context=_context(to))
        # The client must forget what the server offered before TLS, and ask again (RFC 3207).
        smtp.ehlo()
        secure = True
    if not to.user:
        return
    if not secure and not to.is_local:
        raise SendError(f"{to.host}:{to.port} offers no STARTTLS, and the password is not sent without; write smtps://")
    smtp.login(to.user, to.password)


def _context(to: MailServer) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if to.ca:
        _trust(context, to.ca)
    elif to.is_local:
        # Mail servers for their own host have certificates that nobody signed.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _trust(context: ssl.SSLContext, ca: str) -> None:
    try:
        context.load_verify_locations(Path(ca))
    except OSError as error:
        raise SendError(f"{ca} has no certificates that can be read: {error.strerror or error}") from None
