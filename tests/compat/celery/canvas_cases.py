"""Canvases as apps write them, for the real Celery and for tarry's: each makes one, of the names in `m`."""

# mypy: disable-error-code="no-untyped-def"

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

Case = Callable[[Any], Any]


def define(app: Any, canvas: Any) -> SimpleNamespace:
    """The tasks of the cases in this app, and the names of the canvas."""

    def add(x, y=0):
        return x + y

    def xsum(values):
        return sum(values)

    def same(value):
        return value

    def fails(*args):
        raise ValueError("no")

    def numbers(n):
        return list(range(n))

    def taken(*args, **kwargs):
        return [list(args), kwargs]

    def calls(callback):
        return [callback["task"], app.signature(callback).clone().kwargs]

    functions = (add, xsum, same, fails, numbers, taken, calls)
    tasks = {fn.__name__: app.task(name=f"cases.{fn.__name__}")(fn) for fn in functions}
    names = {name: getattr(canvas, name) for name in ("chain", "group", "chord")}
    return SimpleNamespace(**tasks, **names, signature=app.signature)


def again(m: Any, element: Any) -> Any:
    """The element, once it has been JSON."""
    return m.signature(json.loads(json.dumps(element)))


def one_by_one(m: Any, *elements: Any) -> Any:
    """A chain that begins with nothing."""
    chain = m.chain()
    for each in elements:
        chain |= each
    return chain


RUN: list[Case] = [
    # Chains.
    lambda m: m.chain(m.add.s(1, 2), m.add.s(3)).delay(),
    lambda m: m.chain([m.add.s(1, 2), m.add.s(3)]).delay(),
    lambda m: m.chain(m.add.s(n) for n in (1, 2)).delay(),
    lambda m: m.chain(m.add.s(1, 2)).delay(),
    lambda m: m.chain(m.chain(m.add.s(1), m.add.s(2)), m.chain(m.add.s(3), m.add.s(4)), m.add.s(5)).delay(),
    lambda m: (m.add.s(1, 2) | m.add.s(3) | (m.add.s(4) | m.add.s(5))).delay(),
    lambda m: m.chain(m.add.si(1, 1), m.add.si(2, 2)).delay(),
    lambda m: m.chain(m.add.s(1), m.add.s(2)).delay(5),
    lambda m: m.chain(m.taken.s(1)).apply_async(kwargs={"q": 1}),
    lambda m: m.chain(m.taken.si(1), m.taken.s()).apply_async((9,)),
    lambda m: m.chain(m.numbers.s(3), m.xsum.s()).delay(),
    lambda m: m.chain(m.fails.s(), m.same.s()).delay(),
    lambda m: m.chain(m.add.s(1, 1), m.fails.s(), m.same.s()).delay(),
    lambda m: m.chain().delay(),
    lambda m: m.chain([]).delay(),
    lambda m: m.chain(m.chain(), m.add.s(1, 2)).delay(),
    lambda m: one_by_one(m, m.add.s(1, 1), m.add.s(2), m.group(m.add.s(3), m.add.s(4)), m.xsum.s()).delay(),
    # Groups, and what is within them.
    lambda m: m.group(m.add.s(1, 1), m.add.s(2, 2)).delay(),
    lambda m: m.group(m.add.s(n, n) for n in range(3)).delay(),
    lambda m: m.group([]).delay(),
    lambda m: m.group(m.add.s(1, 1)).delay(),
    lambda m: m.group(m.add.s(1), m.add.s(2)).delay(5),
    lambda m: m.group(m.taken.s(1), m.taken.s(2)).apply_async(kwargs={"q": 1}),
    lambda m: m.group(m.group(m.add.s(1, 1), m.add.s(2, 2)), m.add.s(3, 3)).delay(),
    lambda m: m.group(m.add.s(0), m.group(m.add.s(1), m.group(m.add.s(2), m.add.s(3)))).delay(),
    lambda m: m.group(m.group(m.add.s(1, 1))).delay(),
    lambda m: m.group(m.chain(m.add.s(1, 1), m.add.s(1)), m.add.s(5, 5)).delay(),
    lambda m: m.group(m.chain(m.add.s(1, 1), m.group(m.add.s(1), m.add.s(2))), m.add.s(5, 5)).delay(),
    lambda m: m.group(m.chord([m.add.s(1, 1), m.add.s(2, 2)], m.xsum.s()), m.add.s(5, 5)).delay(),
    lambda m: m.group(m.add.s(1, 1), m.fails.s()).delay(),
    # Groups within chains.
    lambda m: m.chain(m.add.s(1, 1), m.group(m.add.s(1), m.add.s(2))).delay(),
    lambda m: m.chain(m.add.s(1, 1), m.group(m.add.s(1), m.add.s(2)), m.xsum.s()).delay(),
    lambda m: m.chain(m.group(m.add.s(1, 1), m.add.s(2, 2)), m.xsum.s(), m.add.s(1)).delay(),
    lambda m: m.chain(m.group(m.add.s(1, 1), m.add.s(2, 2)), m.group(m.xsum.s(), m.same.s())).delay(),
    lambda m: m.chain(m.group(m.add.s(1, 1)), m.same.s()).delay(),
    lambda m: m.chain(m.group(m.add.s(1, 1)), m.xsum.s()).delay(),
    lambda m: m.chain(m.add.s(1, 1), m.group(m.add.s(1)), m.same.s()).delay(),
    lambda m: m.chain(m.add.s(1, 1), m.group(m.add.s(1))).delay(),
    lambda m: (m.add.s(1, 1) | m.group(m.add.s(1)) | m.same.s()).delay(),
    lambda m: (m.group(m.add.s(1, 1)) | m.same.s()).delay(),
    lambda m: (m.group(m.add.s(1, 1), m.add.s(2, 2)) | (m.xsum.s() | m.add.s(1))).delay(),
    lambda m: (m.group(m.add.s(1, 1), m.add.s(2, 2)) | m.group(m.xsum.s(), m.xsum.s()) | m.xsum.s()).delay(),
    lambda m: (m.chain(m.add.s(1, 1), m.add.s(2)) | m.group(m.add.s(3), m.add.s(4))).delay(),
    lambda m: m.chain(m.add.s(1, 1), m.group(m.group(m.add.s(1), m.add.s(2)), m.add.s(5)), m.xsum.s()).delay(),
    # Chords.
    lambda m: m.chord([m.add.s(1, 1), m.add.s(2, 2)], m.xsum.s()).delay(),
    lambda m: m.chord([m.add.s(1, 1), m.add.s(2, 2)])(m.xsum.s()),
    lambda m: m.chord((m.add.s(n, n) for n in range(3)), m.xsum.s()).delay(),
    lambda m: m.chord([m.add.s(1, 1)], m.same.s()).delay(),
    lambda m: m.chord(m.add.s(1, 1), m.same.s()).delay(),
    lambda m: m.chord([], m.same.s()).delay(),
    lambda m: m.chord([m.add.s(1), m.add.s(2)], m.xsum.s()).delay(5),
    lambda m: m.chord([m.add.s(1, 1)], m.same.si("own")).delay(),
    lambda m: m.chord([m.group(m.add.s(1, 1), m.add.s(2, 2)), m.add.s(3, 3)], m.xsum.s()).delay(),
    lambda m: m.chord([m.chord([m.add.s(1, 1), m.add.s(2, 2)], m.xsum.s()), m.add.s(3, 3)], m.xsum.s()).delay(),
    lambda m: m.chord([m.add.s(1, 1), m.add.s(2, 2)], m.group(m.xsum.s(), m.same.s())).delay(),
    lambda m: (m.add.s(1, 1) | m.chord([m.add.s(1), m.add.s(2)], m.xsum.s()) | m.add.s(1)).delay(),
    # Calls as values.
    lambda m: m.taken.s(1, a=1).clone((2,), {"a": 3}).delay(),
    lambda m: m.taken.si(1).clone((2,)).delay(),
    lambda m: m.taken.s(1).apply_async((2,), {"a": 3}),
    lambda m: m.signature("cases.add", (1,), {"y": 2}).delay(),
    lambda m: m.signature(dict(m.add.s(1, 2))).delay(),
    lambda m: again(m, m.add.s(1, 2)).delay(),
    lambda m: again(m, m.chain(m.add.s(1, 2), m.add.s(3))).delay(),
    lambda m: again(m, m.group(m.add.s(1, 2), m.chain(m.add.s(3), m.add.s(4)))).delay(),
    lambda m: again(m, m.chord([m.add.s(1, 2), m.add.s(3, 4)], m.xsum.s())).delay(),
    lambda m: m.calls.delay(m.add.s(1, y=2)),
    # Many calls in one job.
    lambda m: m.xsum.map([[1, 2], [3]]).delay(),
    lambda m: m.add.starmap([(1, 2), (3, 4)]).delay(),
    lambda m: m.add.chunks([(1, 2), (3, 4), (5, 6)], 2).delay(),
    lambda m: m.add.chunks([(1, 2), (3, 4), (5, 6)], 2).group().delay(),
    lambda m: (m.add.chunks([(1, 2), (3, 4), (5, 6)], 2).group() | m.same.s()).delay(),
]
"""Each is enqueued, run, and asked for its result."""

VALUES: list[Case] = [
    lambda m: m.add.s(1, y=2),
    lambda m: m.add.si(1).set(queue="q", countdown=3),
    lambda m: m.group(m.add.s(1), m.add.s(2)),
    lambda m: len(m.group(m.add.s(1), m.add.s(2))),
    lambda m: m.add.s(1) == m.add.s(1),
    lambda m: m.add.s(1) == m.add.s(2),
    lambda m: m.add.s(1)["task"],
    lambda m: m.group(m.add.s(n) for n in range(3)).skew(2, 10, 3).tasks,
    lambda m: m.group(m.add.s(n) for n in range(4)).skew(1, 3).tasks,
    lambda m: m.add.s(1, y=2).set(queue="q").replace(args=(5,)),
    lambda m: m.add.s(1, y=2).replace(kwargs={"y": 3}, options={"queue": "z"}),
    lambda m: m.add.s(1).get("immutable"),
    lambda m: m.chain(m.add.s(1), m.add.s(2)).clone().tasks,
    lambda m: [each["args"] for each in m.group(m.group(m.add.s(1)), m.add.s(2)).tasks[-1:]],
]
"""Each is compared as JSON."""

SENT: list[Case] = [
    lambda m: m.chain(m.add.s(1, 1), m.add.s(2), m.add.s(3)),
    lambda m: m.chain(m.add.s(1, 1), m.add.s(2).set(queue="own")),
    lambda m: m.chain(m.add.s(1, 1).set(queue="own"), m.add.s(2)),
    lambda m: m.group(m.add.s(1, 1), m.add.s(2, 2)),
    lambda m: m.group(m.chain(m.add.s(1, 1), m.add.s(2)), m.add.s(2, 2)),
    lambda m: m.chord([m.add.s(1, 1), m.add.s(2, 2)], m.xsum.s()),
    lambda m: m.chord([m.add.s(1, 1)], m.xsum.s()) | m.add.s(1),
    lambda m: m.chain(m.add.s(1, 1), m.group(m.add.s(2), m.add.s(3)), m.xsum.s(), m.add.s(9)),
]
"""Each is enqueued with each of OPTIONS; what its calls were sent with is compared."""
OPTIONS: list[dict[str, Any]] = [{}, {"queue": "slow"}, {"priority": 3}, {"expires": 600}, {"time_limit": 9}]
