"""Log lines for syslog: RFC 5424, to a socket on this host or by UDP to another."""

import logging
import socket

from tarry.errors import ConfigError
from tarry.runtime.logs.datagrams import DatagramHandler, host_name, truncate
from tarry.runtime.logs.formatting import JsonFormatter, encode, format_time, format_traceback, job_facts, one_line

_DAEMON = 3
_MAX_DATAGRAM = 8192  # Bytes of a message that syslog servers accept.
_SD_ID = "tarry@32473"  # 32473 is the enterprise number for examples (RFC 5612).


def severity(level: int) -> int:
    """The severity of syslog and the journal: 2 critical, 3 error, 4 warning, 6 info, 7 debug."""
    for number, least in ((2, logging.CRITICAL), (3, logging.ERROR), (4, logging.WARNING), (6, logging.INFO)):
        if level >= least:
            return number
    return 7


class SyslogHandler(DatagramHandler):
    """`<30>1 TIME HOST tarry PID LOGGER [tarry@32473 job="..."] message`; in JSON, the object is the message."""

    def pack(self, record: logging.LogRecord) -> bytes:
        """One line of at most 8 KiB, with the traceback."""
        head = f"<{_DAEMON * 8 + severity(record.levelno)}>1 {format_time(record)} {_name(host_name(), 255)}"
        head += f" tarry {record.process or '-'} {_name(record.name, 32)} {_structured_data(record)} "
        return truncate(encode(head + self._message(record)), _MAX_DATAGRAM)

    def _message(self, record: logging.LogRecord) -> str:
        if isinstance(self.formatter, JsonFormatter):
            return self.formatter.format(record)
        traceback = format_traceback(self.formatter or logging.Formatter(), record)
        return one_line(f"{record.getMessage()}\n{traceback}" if traceback else record.getMessage())


def _name(text: str, most: int) -> str:
    # RFC 5424 allows only printable ASCII in the fields of its header.
    return "".join(letter if "!" <= letter <= "~" else "?" for letter in text[:most]) or "-"


def _structured_data(record: logging.LogRecord) -> str:
    pairs = "".join(f' {name}="{_escape(str(value))}"' for name, value in job_facts(record).items())
    return f"[{_SD_ID}{pairs}]" if pairs else "-"


def _escape(value: str) -> str:
    # RFC 5424 wants these three characters escaped in a value.
    return one_line(value.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]"))


def local_handler(path: str) -> SyslogHandler:
    """Sends to a socket such as /dev/log; the first line shows whether it is there."""
    return SyslogHandler(socket.AF_UNIX, path, path)


def remote_handler(host: str, port: int) -> SyslogHandler:
    """Sends by UDP. ConfigError: the name has no address."""
    # The name is looked up only once, since that may take long.
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    except OSError as error:
        raise ConfigError(f"log syslog://{host}:{port}: {host} has no address ({error.strerror})") from None
    return SyslogHandler(family, address, f"syslog://{host}:{port}")
