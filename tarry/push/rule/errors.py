"""The complaint about a text that people wrote: what is wrong, and at which character."""


class SettingSyntaxError(ValueError):
    """The text is none of its kind; the message says why and what to write. `at`: the number of the character, from 1;
    0: the text as a whole."""

    def __init__(self, why: str, at: int = 0) -> None:
        super().__init__(why)
        self.at = at
