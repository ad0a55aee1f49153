"""A producer of tests/system/test_storm.py, run beside that app: `python producer.py SEED`.

Puts jobs of every kind until the file `over` is there, and tells the ledger of each that was acknowledged.
"""

import contextlib
import importlib
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from tarry import Job, QueueFull, StoreError

storm: Any = importlib.import_module("app")
pacing: Any = importlib.import_module("pace")
chance = random.Random(int(sys.argv[1]))
NUMBERS = 1 << 40
"""Of orders: each has its own, or some share one."""
orders: list[int] = []
slow: list[Job[Any]] = []


def keep(task: str, *jobs: Any, **fields: Any) -> None:
    storm.history.put(*jobs, task=f"app.{task}", **fields)


def put_keyed() -> None:
    task = storm.keyed.using(priority=chance.choice([-5, 0, 5]))
    people = [f"who{chance.randrange(5)}" for _ in range(chance.randint(1, 8))]
    for who, job in zip(people, task.enqueue_many([(who,) for who in people]), strict=True):
        keep("keyed", job, lane=who)


def put_ordered() -> None:
    # Of its own: of two enqueues at the same time nobody knows which was first.
    line = f"line {sys.argv[1]} {chance.randrange(2)}"
    for _ in range(chance.randint(1, 3)):
        keep("ordered", storm.ordered.enqueue(line), order=line)


def put_later() -> None:
    delay = chance.uniform(0.1, 3)
    due = storm.history.now() + round(delay * 1e6)
    keep("work", storm.work.using(delay=delay).enqueue(1), due=due)


def put_unique() -> None:
    # Another job may hold the key: then that one counts.
    key = f"key{chance.randrange(10)}"
    keep("work", storm.work.using(key=key).enqueue(2), key=key)


def put_bounded() -> None:
    with contextlib.suppress(QueueFull):
        keep("bounded", *storm.bounded.enqueue_many([(n,) for n in range(10)]))


def put_order() -> None:
    number = chance.randrange(NUMBERS)
    keep("order", storm.order.enqueue(number))
    orders.append(number)


def send_signal(number: int) -> None:
    storm.app.signal("paid", key=str(number), value=7, id=f"paid {number}")


def signal() -> None:
    while orders:
        send_signal(orders[-1])
        orders.pop()


def put_flow() -> None:
    app = storm.app
    if chance.random() < 0.5:
        handle = app.chord([storm.work.call(n) for n in range(chance.randint(1, 6))], storm.total.call())
    else:
        handle = app.chain(storm.work.call(1), storm.work.call(), storm.work.call())
    storm.history.put(handle, logged=False, counted=False)


def put_slow() -> None:
    slow.append(storm.slow.enqueue())
    keep("slow", slow[-1])


def cancel() -> None:
    if slow:
        slow.pop(chance.randrange(len(slow))).cancel()


ACTS: dict[Callable[[], None], int] = {
    put_keyed: 6,
    put_ordered: 2,
    put_later: 4,
    put_unique: 4,
    put_bounded: 2,
    put_order: 2,
    signal: 2,
    put_flow: 2,
    put_slow: 1,
    cancel: 1,
    lambda: keep("flaky", storm.flaky.enqueue(chance.randint(0, 3))): 2,
    lambda: keep("fails", storm.fails.enqueue()): 1,
    lambda: keep("together", *storm.together.enqueue_many([(n,) for n in range(7)])): 1,
}


def main(slowness: float = 1.0) -> None:
    """slowness: how many times as much time lies between its acts, on the average 65 ms."""
    # By the clock: if it paused after each act, it would put more the less busy the machine is.
    pace = pacing.Pace(lambda: chance.uniform(0.01, 0.12) * slowness)
    while not (storm.HERE / "over").exists():
        pace.wait()
        (act,) = chance.choices(list(ACTS), list(ACTS.values()))
        # Nothing was acknowledged then: whether it is stored does not matter here.
        with contextlib.suppress(StoreError):
            act()
    while orders:
        with contextlib.suppress(StoreError):
            signal()
        time.sleep(0.2)


if __name__ == "__main__":
    main()
