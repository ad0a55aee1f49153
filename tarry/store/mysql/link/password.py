"""A password that goes only to servers that may have it.

The server chooses the login method, and some of MySQL's methods send the password itself: mysql_clear_password, dialog,
sha256_password, and caching_sha2_password if the server says that it does not remember us. The driver does all of them,
over any connection.
"""

from typing import Any

from pymysql.err import OperationalError

REFUSED = 2061
"""The number that MySQL's own client gives to errors of a login method."""


class Guarded(bytes):
    """A password that can be hashed, but not sent."""

    # Before the driver sends a password it appends the NUL that ends it; to prove that we know it, it takes the digest.
    def __add__(self, other: Any) -> bytes:
        raise OperationalError(
            REFUSED,
            "the server asks for the password itself, over a connection that does not prove who it is: say"
            " tls=verify&tls_ca=FILE in the URL, or cleartext=yes if the network between is yours alone",
        )


class NoOldPassword:
    """Refuses the login method from before MySQL 4.1; stands in the driver's table of methods."""

    # That method's digest gives the password away.
    def __init__(self, connection: object) -> None:
        pass

    def authenticate(self, packet: object) -> None:
        """Always fails."""
        raise OperationalError(
            REFUSED, "the server asks for the password in the form of before MySQL 4.1: set it anew there"
        )
