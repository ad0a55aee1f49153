"""A client of both doors of a server: it puts jobs, takes them and ends them, and writes down what was acknowledged.

Of a job of beanstalkd the ledger has what this client knows: an attempt begins once it is reserved, may be over once
its delete is sent, and is not to come back once that is acknowledged.
"""

import contextlib
import http.client
import socket
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import greenstalk
from msgspec import json

from tarry.testing.history_check import Ended, FinalState, LeaseEnded, Put, Started
from tarry.testing.ledger import Ledger

QUEUE, TUBE = "outside", "tube"
LEASE = 1.0
"""Seconds for which a job is claimed by HTTP."""
UNKNOWN = 2**60
"""An epoch: of a job of beanstalkd only the client's attempts are known."""
LIMIT = 30.0
"""Seconds for any answer."""
OF_TUBE = "client of beanstalkd"


class Gone(Exception):
    """The server is not there any more: no error, but what is tried."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=LIMIT)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LIMIT)
        self.sock.connect(self._path)


class DoorClient:
    """sockets: the directory where those of the server are."""

    def __init__(self, sockets: Path, ledger: Ledger) -> None:
        self._ledger, self._epochs = ledger, dict[str, int]()
        self._http = _UnixConnection(sockets / "http.sock")
        self._asked_at = 0
        self._tube = self._sent(lambda: greenstalk.Client(str(sockets / "tube.sock"), use=TUBE, watch=TUBE))

    def close(self) -> None:
        """Drops the connections, and so what is reserved; so does a server that dies."""
        for name, epoch in self._epochs.items():
            at = max(epoch, self._asked_at)
            self._ledger.write(Ended(name, epoch, OF_TUBE, at, "released"))
        self._http.close()
        with contextlib.suppress(OSError, greenstalk.Error):
            self._tube.close()

    def _sent(self, call: Callable[[], Any]) -> Any:
        """What it answers. Gone."""
        self._asked_at = self._ledger.now()
        try:
            return call()
        except (greenstalk.TimedOutError, greenstalk.NotFoundError):
            raise
        # AssertionError: greenstalk has got a part of an answer.
        except (OSError, http.client.HTTPException, greenstalk.Error, AssertionError) as error:
            raise Gone from error

    def _post(self, path: str, body: Any) -> tuple[int, Any]:
        """The status, and what the answer says."""
        status, text = self._sent(lambda: self._request(path, json.encode(body)))
        if status >= HTTPStatus.MULTIPLE_CHOICES and status != HTTPStatus.CONFLICT:
            raise RuntimeError(f"{path}: {status} {text!r}")
        return status, json.decode(text)

    def _request(self, path: str, body: bytes) -> tuple[int, bytes]:
        self._http.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self._http.getresponse()
        text = answer.read()
        if not text:
            # Each answer has one; its head did not come as a whole.
            raise http.client.IncompleteRead(b"")
        return answer.status, text

    def put(self, *all: dict[str, Any]) -> None:
        """Puts a job, or a list of jobs, by HTTP."""
        _, told = self._post("/v1/jobs", all[0] if len(all) == 1 else all)
        for job, asked in zip(told if isinstance(told, list) else [told], all, strict=True):
            self._ledger.put(job["id"], key=asked.get("key"))

    def claim(self, limit: int = 1, wait: float = 0.0) -> list[dict[str, Any]]:
        """Takes jobs by HTTP, for LEASE."""
        sent = self._ledger.now()
        _, told = self._post(f"/v1/queues/{QUEUE}/claim", {"limit": limit, "lease": LEASE, "wait": wait})
        for job in told["jobs"]:
            job["owner"] = f"client of HTTP, {job['id']} in {job['epoch']}"
            self._ledger.write(
                Started(job["id"], job["epoch"], job["owner"], self._ledger.now(), claimed=sent),
                LeaseEnded(job["owner"], sent + round(LEASE * 1e6)),
            )
        return list(told["jobs"])

    def finish(self, job: dict[str, Any]) -> None:
        """Ends a job by HTTP; its result is not needed."""
        self._end(job, "done", "finish", {})

    def release(self, job: dict[str, Any]) -> None:
        """Gives a job back by HTTP."""
        self._end(job, "released", "release", {})

    def _end(self, job: dict[str, Any], outcome: str, verb: str, rest: dict[str, Any]) -> None:
        end = Ended(job["id"], job["epoch"], job["owner"], self._ledger.now(), outcome)
        self._ledger.write(end)
        status, _ = self._post(f"/v1/jobs/{job['id']}/{verb}", {"epoch": job["epoch"], **rest})
        # Not to an end that comes too late, or again.
        if status != HTTPStatus.CONFLICT:
            self._ledger.write(Ended(end.job, end.epoch, end.owner, self._ledger.now(), outcome, settled=True))

    def put_in_tube(self, name: str) -> None:
        """Puts a job by beanstalk."""
        self._sent(lambda: self._tube.put(name))
        self._ledger.write(Put(name, self._ledger.now(), counted=False))

    def reserve(self) -> "greenstalk.Job[str] | None":
        """Takes a job by beanstalk, if there is one."""
        try:
            job = self._sent(lambda: self._tube.reserve(timeout=0))
        except greenstalk.TimedOutError:
            return None
        epoch = self._ledger.now()
        self._ledger.write(Started(job.body, epoch, OF_TUBE, epoch))
        self._epochs[job.body] = epoch
        return job  # type: ignore[no-any-return]

    def delete(self, job: "greenstalk.Job[str]") -> None:
        """Ends a job by beanstalk."""
        self._ledger.write(FinalState(job.body, "cancelled", UNKNOWN))
        self._end_in_tube(job, "done", self._tube.delete)

    def release_in_tube(self, job: "greenstalk.Job[str]") -> None:
        """Gives a job back by beanstalk."""
        self._end_in_tube(job, "released", self._tube.release)

    def _end_in_tube(
        self, job: "greenstalk.Job[str]", outcome: str, call: Callable[["greenstalk.Job[str]"], None]
    ) -> None:
        epoch = self._epochs.pop(job.body)
        # Before it is sent: of one that has no answer nobody knows whether it was done.
        self._ledger.write(Ended(job.body, epoch, OF_TUBE, self._ledger.now(), outcome))
        with contextlib.suppress(greenstalk.NotFoundError):
            self._sent(lambda: call(job))
            self._ledger.write(Ended(job.body, epoch, OF_TUBE, self._ledger.now(), outcome, settled=True))

    def use_all(self) -> None:
        """Puts, takes and ends by both doors. One job stays taken by each: it comes back. Gone."""
        self.put({"task": "note", "args": ["run here"]})
        self.put(*({"task": "note", "queue": QUEUE, "args": [n]} for n in range(4)))
        self.put({"task": "note", "queue": QUEUE, "args": ["keyed"], "key": "k7"})
        for number in range(4):
            self.put_in_tube(f"tube {number}")
        first, second, _ = self.claim(limit=3)
        self.finish(first)
        self.release(second)
        self._use_tube()

    def _use_tube(self) -> None:
        for end in (self.delete, self.release_in_tube, lambda job: None):
            if (job := self.reserve()) is not None:
                end(job)

    def take_all(self) -> bool:
        """Takes and ends what there is. Whether there was anything."""
        jobs = self.claim(limit=10, wait=0.1)
        for job in jobs:
            self.finish(job)
        reserved = self.reserve()
        if reserved is not None:
            self.delete(reserved)
        return bool(jobs) or reserved is not None
