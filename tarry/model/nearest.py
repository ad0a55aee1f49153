"""Which known name somebody may have meant."""

from collections.abc import Iterable

MAX_NAME = 200
"""Characters that are compared."""


def nearest(name: str, known: Iterable[str], close: float = 0.6) -> str | None:
    """The known name that is most similar, without regard to case; None if none is. close: from 0 to 1, how similar
    it must be."""
    import difflib  # noqa: PLC0415 - only for complaints

    lower = {one.lower(): one for one in known}
    # Nobody means a name that is so much longer; comparing takes the length of both.
    name = name[:MAX_NAME]
    found = difflib.get_close_matches(name.lower(), lower, 3, close)
    # Of names that are equally similar, one with the same letters: two of them were swapped.
    swapped = [one for one in found if sorted(one) == sorted(name.lower())]
    return lower[(swapped or found)[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean app.hello?`, or empty text."""
    meant = nearest(name, known)
    return f"; did you mean {meant}?" if meant else ""
