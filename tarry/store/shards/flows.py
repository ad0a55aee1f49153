"""The flows of several stores. A flow lives whole on one of them; a signal is kept on all."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from tarry.errors import ConfigError
from tarry.model.flow.node_ids import flow_of
from tarry.model.flow.signal import Signal, SignalWait
from tarry.model.flow_row import FlowChange, FlowRow
from tarry.model.job import Job, State
from tarry.model.quantity import shorten
from tarry.store.rules.flows import FLOW_TASK, RELEASED_AT_ONCE, FlowQuery, NewFlow, NodeLane, StoreFlows
from tarry.store.shards.answers import ShardAnswers, ask_shards, present
from tarry.store.shards.location import LocatedJobs, RendezvousHash
from tarry.store.shards.shard import Shard

T = TypeVar("T")
_SHOWN = 3
"""So many keys are named in an error."""


class FlowPlaces:
    """On which shard a new flow lives. hashing: among those that take new jobs. home, draw: `home` and `draw_id` of
    `ShardedStore`."""

    def __init__(
        self, hashing: RendezvousHash, home: Callable[[str, str | None, str], int | None], draw: Callable[..., bytes]
    ) -> None:
        self._hashing, self._home, self._draw = hashing, home, draw

    def draw(self, draw: Callable[[], bytes], name: str, key: str | None, lanes: Collection[NodeLane]) -> bytes:
        """As `StoreFlows.new_id`, of the ids that `draw` gives."""
        counted = [lane for lane in lanes if lane.is_counted]
        if not counted or len(self._hashing.numbers) == 1:
            return self._draw(draw, FLOW_TASK + name, key)
        self._refuse(name, key, counted)
        # Only the shard of a lane counts how many of its jobs run.
        return self._draw(draw, "", None, counted[0].lane)

    def check(self, number: int, lanes: Collection[NodeLane]) -> None:
        """ConfigError if jobs of one of these lanes are counted elsewhere than on this shard, on which a flow lives."""
        counted = [lane for lane in lanes if lane.is_counted]
        if counted and len(self._hashing.numbers) > 1 and self._homes(counted) != {number}:
            raise ConfigError(
                f"a job adds jobs of {_names(counted)} to its flow, which lives on another store than they: on several"
                " stores the jobs of a key that has a limit are counted on one. Enqueue the jobs instead, or make a"
                " flow of their own of them"
            )

    def _homes(self, lanes: Collection[NodeLane]) -> set[int | None]:
        return {self._home(lane.task, None, lane.lane) for lane in lanes}

    def _refuse(self, name: str, key: str | None, counted: Collection[NodeLane]) -> None:
        # Also if the key happens to live there: another key of this flow would not.
        if key is not None:
            raise ConfigError(
                f"flow {name} has a key, and jobs of {_names(counted)}: on several stores the key says where a flow"
                " lives, and the jobs of a key that has a limit are counted on one. Leave out key=, or enqueue the task"
                " from a job of the flow"
            )
        if len(self._homes(counted)) > 1:
            raise ConfigError(
                f"flow {name} has jobs of {_names(counted)}: on several stores the jobs of a key that has a limit are"
                " counted on one, and a flow lives on one. Make a flow of its own for each key, or enqueue the task"
                " from a job of the flow"
            )


def _names(lanes: Collection[NodeLane]) -> str:
    """The first of them, for people."""
    found = sorted(f"{lane.task} with the key {shorten(lane.lane)}" for lane in lanes)
    return ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")


class ShardedFlows(StoreFlows):
    """The flows of all shards. A verb about one flow asks its shard, and if that does not know it, the others, since a
    shard may have been added; an error if one of them is away. Verbs about all flows ask all shards: PartlyUnavailable,
    with what the others answered, while one is away.

    """

    def __init__(
        self, shards: Sequence[Shard], hashing: RendezvousHash, located: LocatedJobs, places: "FlowPlaces"
    ) -> None:
        self._shards, self._hashing, self._located, self._places = shards, hashing, located, places

    def new_id(self, name: str, key: str | None = None, lanes: Collection[NodeLane] = ()) -> bytes:
        return self._places.draw(lambda: StoreFlows.new_id(self, name), name, key, lanes)

    def _insert(self, new: NewFlow, now: int) -> bytes:
        return self._at_home(new.root.id, lambda flows: flows._insert(new, now))

    def _insert_nodes(self, jobs: Sequence[Job]) -> None:
        for job in jobs[:1]:
            self._at_home(job.id, lambda flows: flows._insert_nodes(jobs))

    def add_nodes(self, jobs: Sequence[Job]) -> None:
        for job in jobs[:1]:
            self._shards[self._place(flow_of(job.id))].ask(lambda store: store.flows.add_nodes(jobs))

    def check_lanes(self, flow: bytes, lanes: Collection[NodeLane]) -> None:
        if lanes:
            self._places.check(self._place(flow), lanes)

    def insert_within(self, connection: Any, new: NewFlow, now: int) -> bytes:
        if len(self._shards) > 1:
            return super().insert_within(connection, new, now)
        return self._at_home(new.root.id, lambda flows: flows.insert_within(connection, new, now))

    def grow(self, flow: bytes, count: int) -> int | None:
        return self._wherever(flow, lambda flows: flows.grow(flow, count))

    def nodes(self, flow: bytes, after: int, limit: int, states: Collection[State] = ()) -> list[Job]:
        return self._wherever(flow, lambda flows: flows.nodes(flow, after, limit, states))

    def get(self, flow: bytes) -> FlowRow | None:
        return self._wherever(flow, lambda flows: flows.get(flow))

    def change(self, change: FlowChange, now: int) -> bool:
        return self._wherever(change.id, lambda flows: flows.change(change, now))

    def find(self, query: FlowQuery) -> list[FlowRow]:
        answers = self._ask_all(lambda flows: flows.find(query))
        found = sorted((row for rows in answers.values() for row in rows), key=lambda row: row.id, reverse=True)
        return answers.result(found[: max(0, query.limit)])

    def release_more(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        answers = self._ask_all(lambda flows: flows.release_more(now, limit))
        return answers.result(any(answers.values()))

    def tidy(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        answers = self._ask_all(lambda flows: flows.tidy(now, limit))
        return answers.result(any(answers.values()))

    def _send(self, signal: Signal, now: int) -> tuple[int, bool]:
        """On every shard, each of which wakes all who wait, so that each job finds it where it lives. Send it again if
        one was away: on the others it stays one signal."""
        answers = self._ask_all(lambda flows: flows.signal(signal, now))
        return answers.result(sum(answers.values())), False

    def _wake_more(self, name: str, key: str, now: int) -> tuple[int, bool]:
        return 0, False

    def signals(self, job: bytes, name: str, key: str, after: int) -> list[Signal]:
        (number,) = self._located.group([job])
        return self._shards[number].ask(lambda store: store.flows.signals(job, name, key, after))

    def awaiting(self, prefix: str, limit: int, after: SignalWait | None = None) -> list[SignalWait]:
        answers = self._ask_all(lambda flows: flows.awaiting(prefix, limit, after))
        found = sorted((one for some in answers.values() for one in some), key=lambda one: one.place)
        return answers.result(found[: max(0, limit)])

    def _at_home(self, id: bytes, call: Callable[[StoreFlows], T]) -> T:
        """Asks the shard where the flow belongs."""
        return self._shards[self._hashing.place_of_job(id)].ask(lambda store: call(store.flows))

    def _place(self, flow: bytes) -> int:
        """The number of the shard where the flow lives; the one where it belongs if it is nowhere."""
        home = self._hashing.place_of_job(flow)
        others = (number for number in present(self._shards) if number != home)
        has_flow = (
            number
            for number in (home, *others)
            if self._shards[number].ask(lambda store: store.flows.get(flow)) is not None
        )
        return next(has_flow, home)

    def _wherever(self, flow: bytes, call: Callable[[StoreFlows], T]) -> T:
        """Asks the shard where the flow belongs, and if it answers with nothing, the others until one does not."""
        home = self._hashing.place_of_job(flow)
        answer = self._at_home(flow, call)
        answers: ShardAnswers[T] = ShardAnswers()
        answers[home] = answer
        for number in present(self._shards):
            if number != home and not answer:
                answers.add(ask_shards(self._shards, [number], lambda _, store: call(store.flows)))
                answer = answers.get(number, answer)
        return answer if answer else answers.result(answer)

    def _ask_all(self, call: Callable[[StoreFlows], T]) -> ShardAnswers[T]:
        return ask_shards(self._shards, present(self._shards), lambda number, store: call(store.flows))
