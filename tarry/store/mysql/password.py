"""A password that goes only to servers that may have it.

A server chooses how it wants to be convinced, and among the ways of MySQL are some that hand over the password itself:
mysql_clear_password, dialog, sha256_password, and caching_sha2_password where the server claims not to remember us. The
driver does all of them, over any connection.
"""

from typing import Any

from pymysql.err import OperationalError

REFUSED = 2061
"""What MySQL's own client calls an error of a way to log in."""


class Guarded(bytes):
    """A password that can be hashed, and not sent.

    Wherever the driver sends a password it first appends the NUL that ends it. What only proves that we know it takes
    its digest.
    """

    def __add__(self, other: Any) -> bytes:
        raise OperationalError(
            REFUSED,
            "the server asks for the password itself, over a connection that does not prove who it is: say"
            " tls=verify&tls_ca=FILE in the URL, or cleartext=yes if the network between is yours alone",
        )


class NoOldPassword:
    """In the driver's table of ways: the one of before 2004, whose digest gives the password away."""

    def __init__(self, connection: object) -> None:
        pass

    def authenticate(self, packet: object) -> None:
        """Never does it."""
        raise OperationalError(
            REFUSED, "the server asks for the password in the form of before MySQL 4.1: set it anew there"
        )
