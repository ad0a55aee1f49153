"""What is not as it is with Celery: a warning once for each, or an error where going on would do something else."""

import os
import sys
import warnings

from tarry.errors import TarryError

_PACKAGE = os.path.dirname(__file__) + os.sep
_said: set[str] = set()


class CeleryDifference(UserWarning):
    """Something is done differently than Celery does it, or a setting has no effect."""


class CeleryNotSupported(TarryError):
    """Celery has it and tarry.compat.celery does not; the message says what to write instead."""


def differs(text: str) -> None:
    """Warns of a difference, once in a process."""
    if text in _said:
        return
    _said.add(text)
    warnings.warn(text, CeleryDifference, stacklevel=_levels())


def _levels() -> int:
    """How many calls up the code of the app is, so that the warning names its line."""
    level = 1
    frame = sys._getframe(1)
    # A dict's own `update`, which calls us, is frozen code.
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_PACKAGE, "<frozen ")):
        frame = frame.f_back
        level += 1
    return level


def forget_warnings() -> None:
    """Lets each difference be told again; for tests."""
    _said.clear()
