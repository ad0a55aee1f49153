"""The answers of endpoints during a test. Nothing is sent over the network."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tarry.client.clock import Clock
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.push.catalog import HttpTaskCatalog
from tarry.push.delivery.delivery_slots import Slots
from tarry.push.delivery.delivery_verdict import DeliveryVerdict, Disabled, judge
from tarry.push.delivery.http_task import DeliveryPort
from tarry.push.endpoint import endpoint_cells
from tarry.push.endpoint.endpoint_settings import Endpoint
from tarry.push.http.failure import Failure, FailureKind
from tarry.push.http.response import HttpResponse
from tarry.tasks.running import current_job

ADDRESS = "nowhere:0"
_MIN_STATUS, _MAX_STATUS = 200, 599


class Sent(Struct, frozen=True):
    """A request that would have been sent."""

    task: str
    method: str
    url: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        """The decoded body."""
        return msgspec.json.decode(self.body)


class Reply(Struct, frozen=True):
    """An answer. json: a value to use as the body, in place of `body`."""

    status: int = 200
    json: Any = None
    body: bytes = b""
    headers: Mapping[str, str] = {}


EndpointReply = int | Reply | None
"""A status, a whole answer, or None: the request was sent and no answer came."""
Answerer = Callable[[Sent], EndpointReply]


class EndpointAnswers:
    """The answers by task: `answers["order.timeout"] = 503`. The default is 200."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self._by_task: dict[str, Answerer] = {}

    def __setitem__(self, task: str, answer: EndpointReply | Sequence[EndpointReply] | Answerer) -> None:
        """Sets the answer: always the same; or several, one after the other, the last one for ever; or a function that
        returns the answer to each request. ValueError, TypeError."""
        if callable(answer):
            self._by_task[task] = answer
            return
        several = list(answer) if isinstance(answer, Sequence) and not isinstance(answer, str | bytes) else [answer]
        if not several:
            raise ValueError(f"answers[{task!r}]: there is none in it")
        # Checked now, so that the error shows the line of the test.
        answers = _repeat_last([_check_answer(task, each) for each in several])
        self._by_task[task] = lambda sent: next(answers)

    def answer(self, sent: Sent) -> HttpResponse | Failure:
        """Records the request, and returns its answer."""
        self.sent.append(sent)
        answerer = self._by_task.get(sent.task)
        answer = _check_answer(sent.task, answerer(sent) if answerer else 200)
        if answer is None:
            return Failure(FailureKind.UNANSWERED, "no answer came", sent=True, address=ADDRESS)
        reply = Reply(answer) if isinstance(answer, int) else answer
        body = reply.body if reply.json is None else msgspec.json.encode(reply.json)
        headers = tuple((name.lower(), value) for name, value in reply.headers.items())
        return HttpResponse(reply.status, headers, body, address=ADDRESS, version="1.1")


def _repeat_last(several: Sequence[EndpointReply]) -> Iterator[EndpointReply]:
    return itertools.chain(several, itertools.repeat(several[-1]))


def _check_answer(task: str, answer: Any) -> EndpointReply:
    status = answer.status if isinstance(answer, Reply) else answer
    if status is not None and (type(status) is not int or not _MIN_STATUS <= status <= _MAX_STATUS):
        raise TypeError(
            f"answers[{task!r}]: {answer!r} is no status from {_MIN_STATUS} to {_MAX_STATUS}, Reply, or None"
        )
    return answer  # type: ignore[no-any-return]


class FakeDelivery(DeliveryPort):
    """Takes the place of a DeliveryCoordinator: answers requests instead of sending them."""

    def __init__(self, catalog: HttpTaskCatalog, clock: Clock, answers: EndpointAnswers) -> None:
        self._catalog, self._clock, self._answers = catalog, clock, answers
        self.most_result = catalog.config().max_body
        self.slots = Slots(1)
        self.slots.alone = True

    def pause_for(self, name: str) -> float | None:
        return None if self._catalog.endpoints[name].enabled else 10.0

    async def send(self, request: Any, limits: Any) -> HttpResponse | Failure:
        headers = {name.lower(): value for name, value in request.headers}
        return self._answers.answer(Sent(current_job().task, request.method, request.url, headers, request.body))

    def judge(self, endpoint: Endpoint, came: HttpResponse | Failure) -> DeliveryVerdict:
        verdict = judge(endpoint, came, self.now() / SECOND)
        if isinstance(verdict, Disabled):
            endpoint_cells.disable(
                self._catalog.store, endpoint.name, self._catalog.is_configured(endpoint.name), verdict.reason
            )
            self._catalog.sync(self._catalog.store)
        return verdict

    def note_interrupted(self, job: Job, sent: bool) -> None:
        """Does nothing: no job is cancelled while it runs in a test."""

    def now(self) -> int:
        return self._clock.now()
