"""Requests to a server, and how long they are retried.

A request that was certainly not done is sent again, with growing pauses. A request that may have been done is sent
again only if doing it twice is harmless. Calls wait while an outage is younger than the time limit.
"""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tarry.errors import ConfigError, StoreAway, StoreUnavailable, TarryError
from tarry.store.redis.link import functions
from tarry.store.redis.link.base import Script, ScriptCall, Word
from tarry.store.redis.link.connection import RedisConnection
from tarry.store.redis.link.redis_errors import TRANSIENT, ErrorReply, ReplyLost, error_of
from tarry.store.redis.link.replicas import Quorum, wait_for_replicas
from tarry.store.shared.deadline import left
from tarry.store.shared.uncertain import uncertain

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.25
"""Seconds between two tries of a request: doubled each time, and jittered."""


class Request(NamedTuple):
    """A script with its keys and arguments, or a plain command."""

    script: Script | None
    words: tuple[Word, ...]

    def command(self, known: set[str], calls_functions: bool) -> tuple[Word, ...]:
        """The command for a server that has the known scripts."""
        if self.script is None:
            return self.words
        if calls_functions and self.script.library is not None:
            return ("FCALL", self.script.function, *self.words)
        if self.script.sha in known:
            return ("EVALSHA", self.script.sha, *self.words)
        return ("EVAL", self.script.text, *self.words)

    @property
    def repeatable(self) -> bool:
        """Whether doing it twice is harmless."""
        return self.script is None or self.script.repeatable


def script_request(call: ScriptCall, *more: str) -> Request:
    """The request for a call, with more keys after its own."""
    return Request(call.script, (len(call.keys) + len(more), *call.keys, *more, *call.args))


def send_requests(connection: RedisConnection, requests: Sequence[Request], deadline: float) -> list[Any]:
    """The answers, with error replies among them."""
    answers = _ask(connection, requests, deadline, connection.calls_functions)
    if not _has_error(answers):
        return answers
    unknown = [n for n in _errors(answers) if _is_unknown(answers[n])]
    if unknown:
        # The server forgets all scripts at once, for instance when it restarts or fails over. It gets the texts again.
        connection.loaded_scripts.clear()
        again = [requests[n] for n in unknown]
        calls_functions = _offer_functions(connection, again, [answers[n] for n in unknown], deadline)
        for n, answer in zip(unknown, _ask(connection, again, deadline, calls_functions), strict=True):
            answers[n] = answer
    return answers


def _ask(connection: RedisConnection, requests: Sequence[Request], deadline: float, calls_functions: bool) -> list[Any]:
    known = connection.loaded_scripts
    answers = connection.ask([request.command(known, calls_functions) for request in requests], deadline)
    if not _has_error(answers):
        for script, _ in requests:
            if script is not None and not (calls_functions and script.library):
                known.add(script.sha)
    return answers


def _has_error(answers: Sequence[Any]) -> bool:
    return ErrorReply in map(type, answers)


def _errors(answers: Sequence[Any]) -> list[int]:
    """The positions of error replies."""
    return [n for n, answer in enumerate(answers) if isinstance(answer, ErrorReply)]


def _is_unknown(reply: ErrorReply) -> bool:
    """Whether the server did not even begin, since it lacks the script or the function."""
    return reply.code == "NOSCRIPT" or functions.is_not_loaded(reply) or functions.is_refused(reply)


def _offer_functions(
    connection: RedisConnection, requests: Sequence[Request], replies: Sequence[ErrorReply], deadline: float
) -> bool:
    """Loads the library that the server lacks. Answers whether the requests are to be sent as functions again."""
    if any(map(functions.is_refused, replies)):
        connection.calls_functions = False
    libraries = [script.library for script, _ in requests if script is not None and script.library is not None]
    if not libraries or not connection.calls_functions:
        return False
    return functions.load(connection, libraries[0], deadline)


class OutageBudget:
    """How long calls may still wait for one server that is away."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._since: float | None = None
        self._served = False

    def give_up_at(self, deadline: float) -> float:
        """The moment when a call with that deadline gives up, if it fails now."""
        # An outage is waited out once. Later calls fail at once, so that a server that is away for long does not hold
        # up its callers.
        if self._since is None:
            self._since = time.monotonic()
        return min(deadline, self._since + self.timeout)

    def succeed(self) -> None:
        """A call has succeeded: there is no outage."""
        if self._since is not None or not self._served:
            self._since = None
            self._served = True

    def classify(self, error: TarryError) -> TarryError:
        """The error to raise: after a first success StoreUnavailable instead of ConfigError."""
        # A password or a right was changed and may be changed back. Then work goes on.
        return StoreUnavailable(str(error)) if self._served and isinstance(error, ConfigError) else error


SendOnce = Callable[[Sequence[Request], float], list[Any]]
"""Sends requests and returns the answers, error replies among them; StoreAway, ReplyLost."""


def call_with_retries(
    requests: Sequence[Request], send_once: SendOnce, budget: OutageBudget, where: Callable[[], str]
) -> list[Any]:
    """The answers. Raises the error of the first answer that is an error reply."""
    deadline = time.monotonic() + left(budget.timeout)
    answers: list[Any] = [None] * len(requests)
    todo: Sequence[int] = range(len(requests))
    perhaps = False  # a part is done, or may be: its answer was lost
    for pause in _pauses():
        try:
            got = send_once([requests[n] for n in todo], deadline)
        except (StoreAway, ReplyLost) as error:
            # It may have been done: a claim that is sent twice would claim jobs that nobody knows of.
            is_lost = isinstance(error, ReplyLost)
            trouble: TarryError = error.as_public() if isinstance(error, ReplyLost) else error
            if is_lost and not all(requests[n].repeatable for n in todo):
                raise trouble from error.__cause__
            perhaps = perhaps or is_lost
        else:
            # The usual case, and the quickest.
            if len(todo) == len(requests) and not _has_error(got):
                budget.succeed()
                return got
            todo = _fill(todo, got, answers)
            if not todo:
                break
            perhaps = perhaps or len(todo) < len(requests)
            trouble = error_of(answers[todo[0]], where())
        # `uncertain`: an error of this try must not promise that nothing was done if an earlier try may have done it.
        if time.monotonic() + pause > budget.give_up_at(deadline):
            raise uncertain(trouble) if perhaps else trouble
        time.sleep(pause)
    errors = [answer for answer in answers if isinstance(answer, ErrorReply)]
    if errors:
        refused = budget.classify(error_of(errors[0], where()))
        raise uncertain(refused) if perhaps or len(errors) < len(answers) else refused
    budget.succeed()
    return answers


class RetryingLink(ABC):
    """The calls of a `RedisLink`, all made by `_send_once`. more_keys: keys that each script gets after its own."""

    url: str

    def __init__(self, timeout: float, quorum: Quorum, *more_keys: str) -> None:
        self._budget, self._quorum, self._more_keys = OutageBudget(timeout), quorum, more_keys
        # Of each thread: `wait_for_replicas` asks on the connection on which the same thread wrote.
        self._last = threading.local()

    def run(self, script: Script, keys: Sequence[bytes | str], args: Sequence[Word]) -> Any:
        words = (len(keys) + len(self._more_keys), *keys, *self._more_keys, *args)
        return self._send([Request(script, words)])[0]

    def run_all(self, calls: Sequence[ScriptCall]) -> list[Any]:
        return self._send([script_request(call, *self._more_keys) for call in calls])

    def command(self, *words: Word) -> Any:
        return self._send([Request(None, words)])[0]

    def wait_for_replicas(self, count: int, seconds: float, to_disk: bool) -> None:
        wait_for_replicas(getattr(self._last, "used", None), self._quorum.at_least(count, to_disk), seconds)

    @abstractmethod
    def _send_once(self, requests: Sequence[Request], deadline: float) -> list[Any]:
        """See `SendOnce`; notes in `_last.used` which connection this thread used."""

    def _send(self, requests: Sequence[Request]) -> list[Any]:
        return call_with_retries(requests, self._send_once, self._budget, self._shown)

    def _shown(self) -> str:
        """The server's name in errors."""
        return self.url


def _fill(todo: Sequence[int], got: Sequence[Any], answers: list[Any]) -> list[int]:
    """Puts what came into `answers`; answers the positions that must be asked again."""
    for n, answer in zip(todo, got, strict=True):
        answers[n] = answer
    return [
        n for n, answer in zip(todo, got, strict=True) if isinstance(answer, ErrorReply) and answer.code in TRANSIENT
    ]


def _pauses() -> Iterator[float]:
    # The first retry is at once: after MOVED, for instance, the link knows the right node already.
    yield 0.0
    pause = FIRST_PAUSE
    while True:
        # Jittered, so that not all clients come at once to a server that is just back.
        yield pause * random.uniform(0.5, 1.0)
        pause = min(pause * 2, LONGEST_PAUSE)
