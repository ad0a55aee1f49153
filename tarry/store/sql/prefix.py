"""Where the names with a common prefix end in an index."""

_LAST = "\U0010ffff"
_SURROGATES = range(0xD800, 0xE000)


def prefix_end(prefix: str) -> str:
    """The first text after all texts with this prefix, by code points."""
    stem = prefix.rstrip(_LAST)
    if not stem:
        # Nothing comes after the last character: only a text that is longer than any name.
        return _LAST * 500
    following = ord(stem[-1]) + 1
    # Surrogates are no characters, and databases refuse them.
    return stem[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)
