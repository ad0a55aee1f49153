"""What endpoints answer during a test, in which nothing goes out into the world."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tarry.client.clock import Clock
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.push import registry
from tarry.push.catalog import HttpTaskCatalog
from tarry.push.delivery.order import KeyOrder
from tarry.push.delivery.slots import Slots
from tarry.push.delivery.task import DeliveryPort
from tarry.push.delivery.verdict import Disabled, Verdict, judge
from tarry.push.endpoint.settings import Endpoint
from tarry.push.http.failure import Failure, FailureKind
from tarry.push.http.response import HttpResponse
from tarry.tasks.running import current_job

ADDRESS = "nowhere:0"
_LEAST, _MOST = 200, 599


class Sent(Struct, frozen=True):
    """A request that would have gone out."""

    task: str
    method: str
    url: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        """The body, as JSON has it."""
        return msgspec.json.decode(self.body)


class Reply(Struct, frozen=True):
    """An answer. json: becomes the body."""

    status: int = 200
    json: Any = None
    body: bytes = b""
    headers: Mapping[str, str] = {}


Said = int | Reply | None
"""A status, a whole answer, or None: the request went out and nothing came back."""
Answerer = Callable[[Sent], Said]


class Answers:
    """By task: `answers["order.timeout"] = 503`. Who has none gets 200."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self._by_task: dict[str, Answerer] = {}

    def __setitem__(self, task: str, said: Said | Sequence[Said] | Answerer) -> None:
        """What it answers from now on: always the same; one after the other, the last for ever; or what a function
        makes of each request. ValueError, TypeError."""
        if callable(said):
            self._by_task[task] = said
            return
        several = list(said) if isinstance(said, Sequence) and not isinstance(said, str | bytes) else [said]
        if not several:
            raise ValueError(f"answers[{task!r}]: there is none in it")
        turns = _in_turn([_checked(task, one) for one in several])
        self._by_task[task] = lambda sent: next(turns)

    def to(self, sent: Sent) -> HttpResponse | Failure:
        """What comes of that request."""
        self.sent.append(sent)
        answerer = self._by_task.get(sent.task)
        said = _checked(sent.task, answerer(sent) if answerer else 200)
        if said is None:
            return Failure(FailureKind.UNANSWERED, "no answer came", sent=True, address=ADDRESS)
        reply = Reply(said) if isinstance(said, int) else said
        body = reply.body if reply.json is None else msgspec.json.encode(reply.json)
        headers = tuple((name.lower(), value) for name, value in reply.headers.items())
        return HttpResponse(reply.status, headers, body, address=ADDRESS, version="1.1")


def _in_turn(several: Sequence[Said]) -> Iterator[Said]:
    return itertools.chain(several, itertools.repeat(several[-1]))


def _checked(task: str, said: Any) -> Said:
    status = said.status if isinstance(said, Reply) else said
    if status is not None and (type(status) is not int or not _LEAST <= status <= _MOST):
        raise TypeError(f"answers[{task!r}]: {said!r} is no status from {_LEAST} to {_MOST}, Reply, or None")
    return said  # type: ignore[no-any-return]


class AtOnce(KeyOrder):
    """In the calling thread."""

    async def check_turn(self, job: Job) -> int | None:
        return self._check_turn(job)

    async def keep_first(self, job: Job) -> None:
        self._keep_first(job)

    async def remove(self, job: Job) -> None:
        self._remove(job)


class Nowhere(DeliveryPort):
    """In place of a DeliveryCoordinator."""

    def __init__(self, catalog: HttpTaskCatalog, clock: Clock, answers: Answers) -> None:
        self._catalog, self._clock, self._answers = catalog, clock, answers
        self.most_result = catalog.config().max_body
        self.slots = Slots(1)
        self.slots.alone = True
        self._order = AtOnce(catalog.store, self.now)

    @property
    def order(self) -> KeyOrder:
        return self._order

    def pause_for(self, name: str) -> float | None:
        return None if self._catalog.endpoints[name].enabled else 10.0

    async def send(self, request: Any, limits: Any) -> HttpResponse | Failure:
        headers = {name.lower(): value for name, value in request.headers}
        return self._answers.to(Sent(current_job().task, request.method, request.url, headers, request.body))

    def judge(self, endpoint: Endpoint, came: HttpResponse | Failure) -> Verdict:
        verdict = judge(endpoint, came, self.now() / SECOND)
        if isinstance(verdict, Disabled):
            registry.disable(
                self._catalog.store, endpoint.name, self._catalog.is_configured(endpoint.name), verdict.reason
            )
            self._catalog.sync(self._catalog.store)
        return verdict

    def note_interrupted(self, job: Job, sent: bool) -> None:
        """Nobody cancels while a job runs."""

    def now(self) -> int:
        return self._clock.now()
