"""The root of a flow: the job that stands for the whole, and what its body says."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from tarry.model.checks.decoders import json_decoder
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.flow.wiring import Ref
from tarry.model.job import HELD, UNFINISHED, Job, State
from tarry.store.rules.flows import FLOW_TASK
from tarry.tasks.arguments.options import MAX_NAME, with_labels


class RootBody(Struct, frozen=True, omit_defaults=True):
    """The body of a root, as JSON."""

    returns: Ref | None = None
    """Which results are that of the flow."""
    is_list: bool = False
    """Without `returns`: the result is the empty list, and not None."""
    names: list[str] = []
    """Of the results in turn: then the result is a dict."""
    more: tuple[Ref, ...] = ()
    """The further parts of a result that is a list."""
    undo: int = 0
    """The index of the node that undoes the others; 0: there is none."""

    def shape(self, results: list[Any]) -> Any:
        """The result of the flow, made of those that it returns, at least one."""
        if self.names:
            return dict(zip(self.names, results, strict=True))
        return results[0] if self.returns and not self.returns.count else results

    @property
    def parts(self) -> tuple[Ref, ...]:
        """All parts of the result; none: it is the empty list, or None."""
        return () if self.returns is None else (self.returns, *self.more)


_decoder = json_decoder(RootBody)


def make_root(
    id: bytes, name: str, key: str | None, queue: str, body: RootBody, now: int, labels: Mapping[str, str] | None = None
) -> Job:
    """The root of a new flow. now: microseconds since the epoch."""
    held = 0 if key is None else HELD
    return Job(
        id, FLOW_TASK + name, msgspec.json.encode(body), queue, state=State.BLOCKED, due=now, state_since=now, key=key,
        key_ttl=UNFINISHED, key_held_until=held, headers=with_labels(name, b"", labels or {}),
    )  # fmt: skip


def read_root(root: Job) -> RootBody:
    """What the body of a root says; nothing if it cannot be read."""
    try:
        return _decoder.decode(root.body)
    except UNREADABLE:
        return RootBody()


def name_of(root: Job) -> str:
    """The name of the flow."""
    return root.task.removeprefix(FLOW_TASK)


def checked_name(name: object) -> str:
    """The name of a flow; ValueError if it is none."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME - len(FLOW_TASK) or "\0" in name:
        raise ValueError(f"a flow's name is text of 1 to {MAX_NAME - len(FLOW_TASK)} characters, not {name!r}")
    return name
