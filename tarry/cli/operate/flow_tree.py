"""A flow as a tree of lines: each box of jobs below one that it waits for."""

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from tarry.client.flows.flow_records import BoxRecord, FailedNodeRecord, FlowDetail
from tarry.model.duration import SECOND, format_duration
from tarry.model.job import State
from tarry.model.quantity import quantity

_ORDER = (
    State.DONE, State.DEAD, State.CANCELLED, State.RUNNING, State.READY, State.SCHEDULED, State.BLOCKED,
)  # fmt: skip
_ENDED = (State.DONE, State.DEAD, State.CANCELLED)
_MOST_RESULT = 2000
"""Characters of a result."""


def flow_lines(flow: FlowDetail, now: int) -> Iterator[str]:
    """A flow, its tree and its end. now: microseconds since the epoch."""
    key = f", key {flow.key}" if flow.key is not None else ""
    yield f"{flow.name} {flow.id}{key}: {_head(flow, now)}"
    yield from FlowTree(flow, now).lines()
    if flow.left_out:
        yield f"{quantity(flow.left_out)} more, too many to show: --json and GET /v1/flows/ID/nodes have pages"
    if flow.note is not None:
        yield f"{flow.state}: {_why(flow)}"
    if flow.result_omitted:
        yield f"result: not shown, since {flow.result_omitted}"
    elif flow.state is State.DONE:
        text = msgspec.json.encode(flow.result).decode()
        yield f"result: {text if len(text) <= _MOST_RESULT else text[:_MOST_RESULT] + '…'}"


def _head(flow: FlowDetail, now: int) -> str:
    ended = f"{flow.ended:,} of {quantity(flow.size)} ended"
    if flow.finished is not None:
        return (
            f"{flow.state} {_long(flow.created, flow.finished)} after it was made, {_ago(flow.finished, now)}; {ended}"
        )
    state = "running" if flow.phase == "running" else flow.phase
    deadline = "" if flow.deadline is None else f", deadline in {_long(now / SECOND, flow.deadline)}"
    return f"{state} for {_long(flow.created, now / SECOND)}{deadline}; {ended}"


def _why(flow: FlowDetail) -> str:
    note = flow.note if isinstance(flow.note, dict) else {"message": str(flow.note)}
    said = ": ".join(str(part) for part in (note.get("type"), note.get("message")) if part)
    return f"job {note['node']}: {said}" if note.get("node") else said


class FlowTree:
    """The boxes of a flow as a tree. A box that waits for several is shown below the last of them, and named below the
    others; one that is the only one to follow stands below, without another indent."""

    def __init__(self, flow: FlowDetail, now: int) -> None:
        self._flow, self._now = flow, now
        self._boxes = {box.first: box for box in flow.boxes}
        self._below: defaultdict[int | None, list[BoxRecord]] = defaultdict(list)
        for box in flow.boxes:
            parents: list[int | None] = [*box.after]
            for first in parents or [None]:
                self._below[first].append(box)

    def lines(self) -> Iterator[str]:
        """All lines, without the head."""
        yield from self._branch(None, "")

    def _branch(self, parent: int | None, indent: str) -> Iterator[str]:
        """The boxes below a box. Not recursive along chains, which may be long."""
        children = self._below[parent]
        for child in children:
            is_last = child is children[-1]
            fork, rest = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
            if not self._is_shown_here(child, parent):
                yield f"{indent}{fork}{child.first} {child.label}: see below"
                continue
            yield from self._chain(child, indent, fork, rest)

    def _chain(self, box: BoxRecord, indent: str, fork: str, rest: str) -> Iterator[str]:
        yield from self._box(box, indent + fork, indent + rest)
        while len(below := self._below[box.first]) == 1 and self._is_shown_here(below[0], box.first):
            box = below[0]
            yield from self._box(box, f"{indent}{rest}↓ ", f"{indent}{rest}  ")
        yield from self._branch(box.first, indent + rest)

    def _is_shown_here(self, box: BoxRecord, parent: int | None) -> bool:
        return parent is None or parent == self._last_shown(box)

    def _last_shown(self, box: BoxRecord) -> int:
        """The box below which it is shown."""
        return max(box.after)

    def _box(self, box: BoxRecord, first: str, rest: str) -> Iterator[str]:
        many = f" x {box.count:,}" if box.count > 1 else ""
        task = "" if box.label in (box.task, "undo") else f" ({box.task})"
        policy = "" if box.on_failure == "stop" else f" [{box.on_failure}]"
        state = self._states(box) if box.count > 1 else self._single(box)
        yield f"{first}{box.first} {box.label}{task}{many}{policy}: {state}"
        for failed in box.failed:
            yield f"{rest}   {_describe_failure(failed, box)}"

    def _states(self, box: BoxRecord) -> str:
        counts = ", ".join(f"{box.states[state]:,} {state}" for state in _ORDER if state in box.states)
        part = f", of {box.looked_at:,} that were looked at" if box.looked_at < box.count else ""
        return counts + part + self._more(box)

    def _single(self, box: BoxRecord) -> str:
        (state,) = box.states or {State.BLOCKED: 1}
        if state in _ENDED:
            return f"{state}{self._times(box)}{self._more(box)}, {_ago(box.ended or 0, self._now)}"
        since = _long(box.since or self._now / SECOND, self._now / SECOND)
        # A blocked job has been so since its flow was made: that says nothing.
        long = "" if state is State.BLOCKED else f" for {since}"
        return f"{state}{long}{self._more(box)}"

    def _times(self, box: BoxRecord) -> str:
        """How long a job that has ended waited and ran, as far as that is known."""
        came = self._released_at(box)
        if box.started and box.ended:
            waited = f", waited {_long(came, box.started)}" if came is not None else ""
            return f"{waited}, ran {_long(box.started, box.ended)}"
        return f" in {_long(came, box.ended)}" if came is not None and box.ended else ""

    def _released_at(self, box: BoxRecord) -> float | None:
        """When it could start: at the end of the last job that it waited for."""
        if not box.after:
            return self._flow.created
        ends = [self._boxes[first].ended for first in box.after]
        return max((end for end in ends if end is not None), default=None)

    def _more(self, box: BoxRecord) -> str:
        failures = f", {quantity(box.failures, 'failed attempt')}" if box.failures else ""
        most = " at most of one" if failures and box.count > 1 else ""
        unlinked = ", added by an attempt that has not ended well" if box.unlinked else ""
        return failures + most + unlinked


def _describe_failure(failed: FailedNodeRecord, box: BoxRecord) -> str:
    which = f"{failed.index} {failed.state}, " if box.count > 1 else ""
    return f"{which}{failed.error or 'no error is kept'} (tarry jobs show {failed.id})"


def _long(since: float, until: float) -> str:
    return format_duration(max(0, round((until - since) * SECOND)))


def _ago(moment: float, now: int) -> str:
    return f"{_long(moment, now / SECOND)} ago"
