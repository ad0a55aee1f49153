"""Names that begin alike stand together in an index: where they end, so that nobody reads beyond."""

_LAST = "\U0010ffff"
_SURROGATES = range(0xD800, 0xE000)


def beyond(prefix: str) -> str:
    """The first text after all that begin so, by code points; of those of the very last character there is no end."""
    stem = prefix.rstrip(_LAST)
    if not stem:
        return _LAST * 500
    following = ord(stem[-1]) + 1
    return stem[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)
