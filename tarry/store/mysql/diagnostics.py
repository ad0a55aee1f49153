"""What `tarry check` says about a server."""

from tarry.store.mysql.link.connection import MysqlConnection
from tarry.store.mysql.schema import MysqlSchema
from tarry.store.rules.base import Diagnostic
from tarry.store.shared.diagnostics import distance, size

_SAFE = "SET GLOBAL innodb_flush_log_at_trx_commit = 1, or a power cut may take the last second of acknowledged jobs"
_LOG_SAFE = "SET GLOBAL sync_binlog = 1, or after a power cut replicas may have jobs that this server does not"
_OLD = 60
"""Seconds that a transaction may be open before `tarry check` warns."""
_OLDEST = """SELECT TIMESTAMPDIFF(SECOND, MIN(trx_started), NOW()) FROM information_schema.INNODB_TRX
    WHERE trx_mysql_thread_id <> CONNECTION_ID()"""
_BYTES = """SELECT SUM(DATA_LENGTH + INDEX_LENGTH) FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'tarry\\_%'"""
_CLOCK = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"


def now(link: MysqlConnection) -> int:
    """The server's clock, in microseconds since the epoch."""
    return int(link.rows(_CLOCK)[0][0])


def diagnostics(link: MysqlConnection, skip_locked: bool) -> list[Diagnostic]:
    """As `Store.diagnostics`."""
    kind, number = link.version
    isolation, full = "READ COMMITTED", "" if skip_locked else "upgrade: without SKIP LOCKED claims wait for each other"
    return [
        Diagnostic(kind.lower(), ".".join(map(str, number)), full),
        Diagnostic("schema", str(MysqlSchema(link).version())),
        link.address.transport(link.is_encrypted).fact("tls=verify&tls_ca=FILE in the URL"),
        *_durability(link),
        Diagnostic("isolation", f"{isolation}, for tarry's own transactions"),
        *distance(lambda: now(link)),
        *_transactions(link),
        size(int(link.rows(_BYTES)[0][0] or 0)),
    ]


def _durability(link: MysqlConnection) -> list[Diagnostic]:
    ((flush, sync, log),) = link.rows("SELECT @@innodb_flush_log_at_trx_commit, @@sync_binlog, @@log_bin")
    said = f"innodb_flush_log_at_trx_commit {flush}"
    binary = Diagnostic("binary log", f"sync_binlog {sync}" if log else "off", _LOG_SAFE if log and sync != 1 else "")
    return [Diagnostic("durability", said, "" if flush == 1 else _SAFE), binary]


def _transactions(link: MysqlConnection) -> list[Diagnostic]:
    rows = link.rows("SELECT COUNT(*) FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = 'PROCESS'")
    # The server shows INNODB_TRX only to users with the right PROCESS.
    if not rows[0][0]:
        return [
            Diagnostic("oldest transaction", "not shown to this user", "GRANT PROCESS ON *.* TO it, to have it shown")
        ]
    age = link.rows(_OLDEST)[0][0]
    if age is None:
        return [Diagnostic("oldest transaction", "none is open")]
    old = f"over {_OLD} s: what finished meanwhile cannot be cleared away; see information_schema.INNODB_TRX"
    return [Diagnostic("oldest transaction", f"{int(age)} s", old if age > _OLD else "")]
