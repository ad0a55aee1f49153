"""The error for a setting that people wrote: what is wrong, and at which character."""


class SettingSyntaxError(ValueError):
    """A rule, template, URL or recipient is invalid. The message says why and what to write.

    at: the number of the character, from 1; 0: the text as a whole.
    """

    def __init__(self, why: str, at: int = 0) -> None:
        super().__init__(why)
        self.at = at
