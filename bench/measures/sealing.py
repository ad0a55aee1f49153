"""What it costs that nobody reads what jobs say: beside the same without keys, one round of each in turn."""

import base64
import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from statistics import median

from bench.measure import Figure, measure
from bench.place import Bench
from tarry import App
from tarry.config.config import Config, EncryptionConfig
from tarry.model.job import Job, State
from tarry.store.rules.ids import uuid7
from tarry.store.sealing.fields import FieldSealer
from tarry.store.sealing.key_ring import KeyRing

_ROUNDS = 9
_KEY = "TARRY_BENCH_KEY"


def _echo(i: int, text: str) -> str:
    return text


@measure("sealing", limit=240)
def sealing(bench: Bench) -> Iterator[Figure]:
    os.environ[_KEY] = base64.b64encode(bytes(32)).decode()
    count = bench.scaled(10_000)
    for size in (60, 10_000):
        clear, sealed = list[tuple[float, float]](), list[tuple[float, float]]()
        for _ in range(3 if bench.quick else _ROUNDS):
            clear.append(_round(bench, (), count // (1 if size < 1000 else 10), size))
            sealed.append(_round(bench, (f"env:{_KEY}",), count // (1 if size < 1000 else 10), size))
        for at, what in enumerate(("enqueue_many", "drain")):
            name = f"{what}, SQLite, arguments and result of {size:,} bytes"
            yield Figure(name, median(one[at] for one in clear), "µs a job")
            yield Figure(f"{name}, sealed", median(one[at] for one in sealed), "µs a job")
    yield from _alone(count)


def _round(bench: Bench, keys: tuple[str, ...], count: int, size: int) -> tuple[float, float]:
    """Microseconds a job for its enqueue among many, and for its run by a worker in this process."""
    with tempfile.TemporaryDirectory(dir=bench.directory) as home:
        app = App(f"sqlite:///{home}/bench.db", closures=True)
        app.configure(Config(encryption=EncryptionConfig([*keys])))
        echo = app.task(name="echo")(_echo)
        text = "x" * size
        begin = time.perf_counter()
        echo.enqueue_many([(number, text) for number in range(count)])
        between = time.perf_counter()
        assert app.drain() == count
        end = time.perf_counter()
        app.close()
    return (between - begin) / count * 1e6, (end - between) / count * 1e6


def _alone(count: int) -> Iterator[Figure]:
    """The ciphers and what is around them, without a store."""
    sealer = FieldSealer(KeyRing([bytes(32)]))
    for size in (60, 10_000):
        job = Job(uuid7(), "echo", b'["%b"]' % (b"x" * size), state=State.READY)
        sealed = sealer.seal_job(job)
        for what, work in (("seal", partial(sealer.seal_job, job)), ("open", partial(sealer.open_job, sealed))):
            begin = time.perf_counter()
            for _ in range(count):
                work()
            spent = (time.perf_counter() - begin) / count * 1e6
            yield Figure(f"{what} the arguments of a job, {size:,} bytes", spent, "µs")
