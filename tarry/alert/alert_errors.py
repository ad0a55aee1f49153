"""The error of a message that could not be sent."""

from tarry.errors import TarryError


class SendError(TarryError):
    """The message was not sent; its text is the reason, in one line without secrets. It is sent again later."""
