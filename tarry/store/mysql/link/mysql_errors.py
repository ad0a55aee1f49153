"""Translates errors of the server and the driver. All code outside the MySQL store sees only `tarry.errors`."""

import ssl
from typing import Any

# As in `link.connection`: not by way of `pymysql.err`.
from pymysql.err import InterfaceError, InternalError

from tarry import errors
from tarry.store.mysql.link.address import Address
from tarry.store.mysql.link.password import REFUSED
from tarry.store.shared.uncertain import LOST

# Changed meanwhile; waited too long for a lock; a deadlock; the table was altered; it is locked.
_AGAIN = {1020, 1205, 1213, 1412, 3572}
# 1242, a subquery with several rows, is how a look fails if the settings have changed (`mysql.settings._SAME`).
_STALE, _DUPLICATE = 1242, 1062
_LOST = {1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2027, 2055, 3169, 4031, *range(2000, 2026)}
_CROWDED = {1040, 1203, 1226}
_FULL = {1021, 1114, 1041}
_READ_ONLY = {1290, 1792, 1836}
_DENIED = {1044, 1045, 1049, 1130, 1131, 1133, 1141, 1142, 1143, 1227, 1251, 1698, 2026, 2049, 2059}
_MISSING = {1051, 1054, 1146}
_TOO_LONG = {1153, 1301}


class Conflict(Exception):
    """Another transaction was in the way: a new try from the beginning may succeed."""


class StaleSettings(Conflict):
    """The settings have changed since this process read them."""


class NotAsSeen(Conflict):
    """Some jobs are not as they were seen: roll back, and look at them first."""


class DuplicateKey(Exception):
    """A row with that id or key is there already."""


class Denied(errors.StoreAway):
    """The server does not let us in. While a store is opened that is a ConfigError."""


def translate(error: Exception, address: Address, connecting: bool = False) -> Exception:
    """Our error for one of theirs. Its message never contains the password. connecting: nothing was sent yet but what
    makes the connection."""
    code, said = _parts(error)
    where = address.shown
    if code == _STALE:
        return StaleSettings("the settings have changed")
    if code in _AGAIN:
        return Conflict(said)
    if code == _DUPLICATE:
        return DuplicateKey(said)
    if isinstance(getattr(error, "original_exception", error), ssl.SSLCertVerificationError):
        return Denied(f"{where}: {said}; {_way_in(2026)}")
    if isinstance(error, OSError | EOFError | InterfaceError) or code in _LOST or _mixed_up(error, code):
        if not connecting:
            return errors.StoreUnavailable(f"{where}: {LOST} ({said})")
        return errors.StoreUnavailable(f"{where}: no answer ({said}); is the server up, and host and port right?")
    if code in _CROWDED:
        return errors.StoreUnavailable(f"{where} takes no more connections ({said}): raise max_connections there")
    return _refusal(error, code, said, where)


def _refusal(error: Exception, code: int, said: str, where: str) -> Exception:
    if code == REFUSED:
        return Denied(f"{where}: {said}")
    if code in _DENIED:
        return Denied(f"{where}: {said.rstrip('.')}; {_way_in(code)}")
    if code in _FULL or "error 28" in said or "errno: 28" in said:
        return errors.StoreFull(f"{where}: no room ({said}); free some disk space there, then it goes on")
    if code in _READ_ONLY:
        return errors.StoreReadOnly(f"{where} is read-only: name the primary, or SET GLOBAL read_only=0 there")
    if code in _MISSING:
        return errors.StoreError(f"{where}: {said}: tarry's tables are gone or changed; a restart makes them anew")
    if code == 1665:
        return errors.StoreError(f"{where} has binlog_format=STATEMENT: set it to ROW or MIXED there")
    if code == 1406:
        return errors.StoreError(f"{where}: {said}: names of queues and tasks may take 500 bytes, of lanes 700")
    if code in _TOO_LONG:
        return errors.StoreError(f"{where}: a job is too large: raise max_allowed_packet there to over twice its bytes")
    if isinstance(error, RuntimeError) and "cryptography" in said:
        return Denied(f"{where}: the server asks for a password exchange without TLS: say tls=verify in the URL,"
                      " or pip install cryptography")  # fmt: skip
    return errors.StoreError(f"{where}: {type(error).__name__}: {code} {said}")


def _way_in(code: int) -> str:
    if code == 1049:
        return "create it: CREATE DATABASE, or name another in the URL"
    if code in (1045, 1130, 1698, 1251, 2059):
        return "check user and password in the URL, and from where that user may connect"
    if code == 2026:
        return "check tls= and tls_ca= in the URL"
    return "the user needs all rights on the database: GRANT ALL ON database.* TO user"


def _mixed_up(error: Exception, code: int) -> bool:
    """Whether an answer makes no sense: it may be the answer to another statement."""
    return isinstance(error, InternalError) and not code


def _parts(error: Exception) -> tuple[int, str]:
    args: tuple[Any, ...] = error.args
    if len(args) > 1 and isinstance(args[0], int):
        return args[0], " ".join(str(args[1]).split())
    return 0, " ".join(str(error).split()) or type(error).__name__
