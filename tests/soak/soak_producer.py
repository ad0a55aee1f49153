"""The producer of a soak, beside that of the storm, whose acts it adds to: `python soak_producer.py SEED`.

It also puts by HTTP, and puts and takes as a client of beanstalkd. Of a job of beanstalkd the ledger has what this
client knows: an attempt begins once it is reserved, may be over once its delete is sent, and is not to come back once
that is acknowledged.
"""

import contextlib
import importlib
import os
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

import greenstalk
from msgspec import json

from tarry import Job
from tarry.testing.history_check import Ended, FinalState, Put, Started

soak: Any = importlib.import_module("soak_app")
producer: Any = importlib.import_module("producer")
storm, history, chance = soak.storm, soak.history, producer.chance
facts = json.decode((soak.HERE / "facts.json").read_bytes(), type=dict[str, float])
KEPT = "8m"
"""Of signals: longer than any order takes to wait for one, shorter than the warm-up."""
ORDERS = 8
"""Each number of an order leaves a row for a year: the number of its last signal."""
SET_LATELY = 60.0
"""So many seconds after the store's clock was set a client may still go by the time before."""
UNKNOWN = 2**60
"""An epoch: only the client's attempts are known."""
OWNER = "client of beanstalkd"


class Tube:
    """A connection to the door of beanstalkd, made anew after each error."""

    def __init__(self) -> None:
        self._client: greenstalk.Client[str] | None = None

    def call(self, verb: str, *args: Any, **rest: Any) -> Any:
        """OSError if the server is away, also for the errors that it answers."""
        try:
            if self._client is None:
                address = ("127.0.0.1", int(facts["beanstalk"]))
                self._client = greenstalk.Client(address, use="tube", watch="tube")
            return getattr(self._client, verb)(*args, **rest)
        except greenstalk.TimedOutError:
            raise
        except (OSError, greenstalk.Error) as error:
            self.close()
            raise OSError(str(error)) from error

    def close(self) -> None:
        if self._client is not None:
            with contextlib.suppress(OSError, greenstalk.Error):
                self._client.close()
        self._client = None


tube = Tube()


def put_in_tube() -> None:
    name = f"tube {os.urandom(8).hex()}"
    with contextlib.suppress(OSError):
        tube.call("put", name)
        history.write(Put(name, history.now(), counted=False))


def take_from_tube(seconds: int = 0) -> bool:
    """Whether there was one."""
    try:
        job = tube.call("reserve", timeout=seconds)
    except (OSError, greenstalk.TimedOutError) as error:
        return not isinstance(error, greenstalk.TimedOutError)
    epoch, pid = history.now(), os.getpid()
    history.write(Started(job.body, epoch, OWNER, epoch, pid), Ended(job.body, epoch, OWNER, epoch, "deleting"))
    # Before it is sent: of a delete that has no answer nobody knows whether it was done.
    history.write(FinalState(job.body, "cancelled", UNKNOWN))
    with contextlib.suppress(OSError):
        tube.call("delete", job)
        history.write(Ended(job.body, epoch, OWNER, history.now(), "done", settled=True))
    return True


def put_by_http() -> None:
    body = json.encode({"task": "app.work", "args": [3], "queue": "other"})
    url = f"http://127.0.0.1:{int(facts['http'])}/v1/jobs"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    # Not acknowledged then: while the server is away, or its store.
    with (
        contextlib.suppress(urllib.error.URLError, HTTPException, OSError),
        urllib.request.urlopen(request, timeout=10) as answer,
    ):
        history.put(json.decode(answer.read(), type=dict[str, Any])["id"], task="app.work")


def put_later() -> None:
    delay = chance.uniform(0.1, 3)
    due = history.now() + round(delay * 1e6)
    job = storm.work.using(delay=delay).enqueue(1)
    history.put(job, task="app.work", due=0 if was_set() else due)


def was_set() -> bool:
    return bool(time.time() - (soak.HERE / "ahead").stat().st_mtime < SET_LATELY)


def keep(task: str, *jobs: Job[Any]) -> None:
    history.put(*jobs, task=f"soak_app.{task}")


def send_signal(number: int) -> None:
    storm.app.signal("paid", key=str(number), value=7, keep=KEPT)


def end() -> None:
    """Takes what is left in the tube."""
    last = time.monotonic() + 60
    while take_from_tube(1) and time.monotonic() < last:
        pass
    tube.close()


producer.ACTS.pop(producer.put_later)
producer.ACTS.update(
    {
        put_later: 4,
        put_in_tube: 2,
        take_from_tube: 3,
        put_by_http: 3,
        lambda: keep("rated", *soak.rated.enqueue_many([(n,) for n in range(chance.randint(1, 8))])): 2,
        lambda: keep("too_long", soak.too_long.enqueue()): 0.3,
        lambda: history.put(storm.app.enqueue("hook", {"order": 7}), task="hook", logged=False): 3,
    }
)
producer.NUMBERS, producer.send_signal = ORDERS, send_signal
# Orders of a producer that was killed may wait for a signal still.
producer.orders.extend(range(ORDERS))

if __name__ == "__main__":
    producer.main(facts["slowness"])
    end()
