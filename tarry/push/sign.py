"""The signature of a request, for programs that receive them and test how they check it."""

from tarry.push.http.sign import Signer, headers

__all__ = ["Signer", "headers"]
