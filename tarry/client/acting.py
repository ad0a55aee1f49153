"""Who acts now, as far as this thread or coroutine knows; and the mark that an act leaves on a job."""

import contextlib
import getpass
import socket
from collections.abc import Iterator
from contextvars import ContextVar
from functools import lru_cache

from msgspec import Struct

from tarry.model import lifecycle
from tarry.model.attempts import JobAct
from tarry.model.change import Change
from tarry.model.job import Job


class Actor(Struct, frozen=True):
    """A person or a program."""

    name: str
    """Of a token, or of the user of a command; empty: not known."""
    address: str = ""
    """Of the client of a door, or the host of a command or program; empty: not known."""
    via: str = "program"
    """`http`, `console`, `command`, `operation` or `program`."""


_actor: ContextVar[Actor | None] = ContextVar("tarry_actor", default=None)


@contextlib.contextmanager
def acting(actor: Actor) -> Iterator[None]:
    """Within the block this actor acts."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def current_actor() -> Actor:
    """Who acts; a program on this host if nobody said."""
    return _actor.get() or _program()


def command_actor() -> Actor:
    """The user of a command on this host."""
    try:
        name = getpass.getuser()
    # A container may have no name for its user: KeyError, or OSError from Python 3.13 on.
    except (KeyError, OSError):
        name = ""
    return Actor(name, socket.gethostname(), "command")


def sign_change(job: Job, change: Change, act: str, now: int, detail: str = "") -> Change:
    """The change that somebody makes to a job by hand, with who it was. detail: of `JobAct`."""
    return lifecycle.by_hand(job, change, job_act(act, now, detail))


def job_act(act: str, now: int, detail: str = "") -> JobAct:
    """What this actor does to a job."""
    actor = current_actor()
    return JobAct(now, act, actor.name, actor.address, actor.via, detail)


@lru_cache(maxsize=1)
def _program() -> Actor:
    return Actor("", socket.gethostname())
