"""Somebody could not be told."""

from tarry.errors import TarryError


class Unsent(TarryError):
    """Why, in a line without secrets. It is tried again."""
