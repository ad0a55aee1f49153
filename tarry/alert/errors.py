"""Somebody could not be told."""

from tarry.errors import TarryError


class SendError(TarryError):
    """Why, in a line without secrets. It is tried again."""
