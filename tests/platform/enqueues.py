"""A program that enqueues and looks, and needs nothing but the base install: `python -m tests.platform.enqueues`. For
systems on which no worker runs."""

import asyncio
import tempfile

from tarry import App, Task


def add(one: int, two: int) -> None:
    """Not run here."""
    raise AssertionError


async def _later(task: Task[[int, int], None]) -> str:
    return (await task.aenqueue(3, 4)).id


def main() -> None:
    """AssertionError if a job is not stored as it was put."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        app = App(f"sqlite:///{directory}/jobs.db")
        task = app.task(add)
        ids = [task.enqueue(1, 2).id, asyncio.run(_later(task)), *(job.id for job in task.enqueue_many([(5, 6)]))]
        task.using(delay="1h", key="one").enqueue(0, 0)
        assert [app.get(id).state.value for id in ids] == ["ready"] * 3
        assert sum(1 for _ in app.jobs(state="scheduled")) == 1
        assert app.get(ids[0]).cancel()
        app.close()
    print("4 jobs were stored and found")


if __name__ == "__main__":
    main()
