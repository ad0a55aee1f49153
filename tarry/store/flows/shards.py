"""The flows of several stores. A flow lives whole on one of them; a signal is kept on all."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from tarry.model.flow.flow import FlowChange, FlowRow
from tarry.model.flow.signal import Awaiting, Signal
from tarry.model.job import Job, State
from tarry.store.flows.flows import FLOW_TASK, RELEASED_AT_ONCE, FlowQuery, NewFlow, StoreFlows
from tarry.store.shards.answers import ShardAnswers, ask_shards
from tarry.store.shards.location import LocatedJobs, RendezvousHash
from tarry.store.shards.shard import Shard

Answer = TypeVar("Answer")


class ShardedFlows(StoreFlows):
    """The flows of all shards. A verb about one flow asks its shard, and if that does not know it, the others, since a
    shard may have been added; an error if one of them is away. Verbs about all flows ask all shards: PartlyUnavailable,
    with what the others answered, while one is away.

    draw: `ShardedStore.draw_id`.
    """

    def __init__(
        self, shards: Sequence[Shard], hashing: RendezvousHash, located: LocatedJobs, draw: Callable[..., bytes]
    ) -> None:
        self._shards, self._hashing, self._located, self._draw = shards, hashing, located, draw

    def new_id(self, name: str, key: str | None = None) -> bytes:
        return self._draw(lambda: StoreFlows.new_id(self, name), FLOW_TASK + name, key)

    def _insert(self, new: NewFlow, now: int) -> bytes:
        return self._at_home(new.root.id, lambda flows: flows._insert(new, now))

    def _insert_nodes(self, jobs: Sequence[Job]) -> None:
        for job in jobs[:1]:
            self._at_home(job.id, lambda flows: flows._insert_nodes(jobs))

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

    def tend(self, now: int, limit: int = RELEASED_AT_ONCE) -> bool:
        answers = self._ask_all(lambda flows: flows.tend(now, limit))
        return answers.result(any(answers.values()))

    def signal(self, signal: Signal, now: int) -> int:
        """As promised: on every shard, so that each job finds it where it lives. Send it again if one was away: on the
        others it stays one signal."""
        answers = self._ask_all(lambda flows: flows.signal(signal, now))
        return answers.result(sum(answers.values()))

    def signals(self, job: bytes, name: str, key: str, after: int) -> list[Signal]:
        (number,) = self._located.group([job])
        return self._shards[number].ask(lambda store: store.flows.signals(job, name, key, after))

    def awaiting(self, prefix: str, limit: int) -> list[Awaiting]:
        answers = self._ask_all(lambda flows: flows.awaiting(prefix, limit))
        found = sorted((one for some in answers.values() for one in some), key=lambda one: (one.name, one.key, one.job))
        return answers.result(found[: max(0, limit)])

    def _at_home(self, id: bytes, call: Callable[[StoreFlows], Answer]) -> Answer:
        """Asks the shard where the flow belongs."""
        return self._shards[self._hashing.place_of_job(id)].ask(lambda store: call(store.flows))

    def _wherever(self, flow: bytes, call: Callable[[StoreFlows], Answer]) -> Answer:
        """Asks the shard where the flow belongs, and if it answers with nothing, the others until one does not."""
        home = self._hashing.place_of_job(flow)
        answer = self._at_home(flow, call)
        answers: ShardAnswers[Answer] = ShardAnswers()
        answers[home] = answer
        for number in range(len(self._shards)):
            if number != home and not answer:
                answers.add(ask_shards(self._shards, [number], lambda _, store: call(store.flows)))
                answer = answers.get(number, answer)
        return answer if answer else answers.result(answer)

    def _ask_all(self, call: Callable[[StoreFlows], Answer]) -> ShardAnswers[Answer]:
        return ask_shards(self._shards, range(len(self._shards)), lambda number, store: call(store.flows))
