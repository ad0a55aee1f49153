"""What is asked of a server, and how long trouble is waited out.

What was certainly not done is sent again, with growing pauses; what may have been done, only if doing it twice is
harmless. An outage is waited out once: while it is younger than the time limit. After that calls fail at once, so that
a server that is away for long does not hold up everybody who asks.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tarry.errors import ConfigError, StoreUnavailable, TarryError
from tarry.store.redis.link import Call, Script, Word
from tarry.store.redis.link_refusal import PASSING, Lost, Refusal, Unreached, error_of
from tarry.store.redis.link_wire import Wire
from tarry.store.shared.deadline import left
from tarry.store.shared.uncertain import uncertain

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.25


class Request(NamedTuple):
    """A script with its keys and arguments, or a plain command."""

    script: Script | None
    words: tuple[Word, ...]

    def spoken(self, known: set[str]) -> tuple[Word, ...]:
        """As it is sent to a server that knows those scripts."""
        if self.script is None:
            return self.words
        if self.script.sha in known:
            return ("EVALSHA", self.script.sha, *self.words)
        return ("EVAL", self.script.text, *self.words)

    @property
    def repeatable(self) -> bool:
        """Doing it twice is harmless."""
        return self.script is None or self.script.repeatable


def scripted(call: Call, *more: str) -> Request:
    """The request for a call; with more keys behind its own."""
    return Request(call.script, (len(call.keys) + len(more), *call.keys, *more, *call.args))


def asked(wire: Wire, requests: Sequence[Request], deadline: float) -> list[Any]:
    """The answers of a server that may have forgotten its scripts: then it is told them, and asked again."""
    answers = wire.ask([request.spoken(wire.known) for request in requests], deadline)
    refused = [n for n, answer in enumerate(answers) if isinstance(answer, Refusal)]
    if not refused:
        wire.known.update([request.script.sha for request in requests if request.script is not None])
    elif forgotten := [n for n in refused if answers[n].code == "NOSCRIPT"]:
        wire.known.clear()
        again = wire.ask([requests[n].spoken(wire.known) for n in forgotten], deadline)
        for n, answer in zip(forgotten, again, strict=True):
            answers[n] = answer
    return answers


class Patience:
    """How long trouble with one server may still be waited out."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._since: float | None = None
        self._served = False

    def until(self, deadline: float) -> float:
        """The moment to give up, for a call with that deadline that is in trouble now."""
        if self._since is None:
            self._since = time.monotonic()
        return min(deadline, self._since + self.timeout)

    def over(self) -> None:
        """It serves us."""
        if self._since is not None or not self._served:
            self._since = None
            self._served = True

    def fitting(self, error: TarryError) -> TarryError:
        """What is wrong in a URL shows at once. A password or a right that was changed since may be changed back, and
        then work goes on."""
        return StoreUnavailable(str(error)) if self._served and isinstance(error, ConfigError) else error


Once = Callable[[Sequence[Request], float], list[Any]]
"""Sends requests and returns the answers, refusals among them; Unreached, Lost."""


def settled(requests: Sequence[Request], once: Once, patience: Patience, where: Callable[[], str]) -> list[Any]:
    """The answers, all of them good ones; or the error of the first that is not."""
    deadline = time.monotonic() + left(patience.timeout)
    answers: list[Any] = [None] * len(requests)
    todo: Sequence[int] = range(len(requests))
    perhaps = False  # a part is done, or may be: its answer was lost
    for pause in _pauses():
        try:
            got = once([requests[n] for n in todo], deadline)
        except (Unreached, Lost) as error:
            if isinstance(error, Lost) and not all(requests[n].repeatable for n in todo):
                raise
            perhaps = perhaps or isinstance(error, Lost)
            trouble: TarryError = error
        else:
            todo = _noted(todo, got, answers)
            if not todo:
                break
            perhaps = perhaps or len(todo) < len(requests)
            trouble = error_of(answers[todo[0]], where())
        if time.monotonic() + pause > patience.until(deadline):
            raise uncertain(trouble) if perhaps else trouble
        time.sleep(pause)
    refusals = [answer for answer in answers if isinstance(answer, Refusal)]
    if refusals:
        refused = patience.fitting(error_of(refusals[0], where()))
        raise uncertain(refused) if perhaps or len(refusals) < len(answers) else refused
    patience.over()
    return answers


def _noted(todo: Sequence[int], got: Sequence[Any], answers: list[Any]) -> list[int]:
    """Puts the answers in their places; which are to be asked for again."""
    for n, answer in zip(todo, got, strict=True):
        answers[n] = answer
    return [n for n, answer in zip(todo, got, strict=True) if isinstance(answer, Refusal) and answer.code in PASSING]


def _pauses() -> Iterator[float]:
    yield 0.0
    pause = FIRST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(pause * 2, LONGEST_PAUSE)
