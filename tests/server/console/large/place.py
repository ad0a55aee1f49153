"""A master beside a store of a million jobs, and who looks at its console."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tarry.model.job import Job
from tarry.store.opening import open_store
from tests.cli.project import Project, until
from tests.server.console.large.filling import QUEUES, TASKS, fill, made_id, queue_of, task_name
from tests.servers.server import free_port

JOBS = 1_000_000
DRAINED = "drained"
APP = f"""
from tarry import App

app = App(retry=None)

def send(address, mail):
    '''Sends a mail.'''

for name, queue in {[(task_name(n), queue_of(n)) for n in range(TASKS) if queue_of(n) != QUEUES[-1]]}:
    app.task(name=name, queue=queue)(send)

@app.task(queue="{DRAINED}", cron="0 3 1 1 *")
def drain() -> None:
    '''As short as can be.'''
"""
HTTP_TASKS = "".join(
    f'[tasks.{task_name(n)}]\nurl = "http://127.0.0.1:9/hook"\nqueue = "{QUEUES[-1]}"\n'
    for n in range(TASKS)
    if queue_of(n) == QUEUES[-1]
)


class LargePlace(Project):
    """The master serves the console, and works off one queue; the million is of others. url: of the store."""

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory, APP)
        self.store_url, self.url = url, f"http://127.0.0.1:{free_port()}"
        self.settings(
            f'store = "{url}"\n[server]\nhttp = "{urlsplit(self.url).netloc}"\n'
            f'[pools.all]\nqueues = ["{DRAINED}"]\nthreads = 4\nmax_jobs = 0\n'
            f'[push]\nallow = ["127.0.0.0/8"]\n{HTTP_TASKS}'
        )
        self.browser = httpx.Client(base_url=self.url, headers={"accept": "text/html"}, timeout=60)

    def fill(self) -> None:
        """Puts the million."""
        store = open_store(self.store_url)
        began = time.monotonic()
        fill(store, JOBS, store.time())
        store.close()
        print(f"\n{JOBS:,} jobs are put in {time.monotonic() - began:.0f} s: {self.store_url.partition(':')[0]}")

    def start_again(self) -> None:
        """The master ends, and another one begins."""
        self.said("stop")
        self.serve()

    def put_work(self, count: int) -> None:
        """Puts jobs for the worker, in a queue that is paused."""
        store = open_store(self.store_url)
        store.pause(DRAINED, True)
        now = store.time()
        for start in range(0, count, 1000):
            ids = [made_id(now, now % 2**40 + number) for number in range(start, min(start + 1000, count))]
            store.insert([Job(id, "app.drain", b"[]", DRAINED, due=now, state_since=now) for id in ids])
        store.close()

    def processed(self) -> int:
        """Jobs that the worker has ended."""
        return sum(child.processed for child in self.board().children)

    def rate(self, seconds: float) -> float:
        """Jobs a second that the worker ends during that time; before and after it, the queue is paused."""
        self._order("resume")
        before, began = self.processed(), time.monotonic()
        until(lambda: time.monotonic() - began >= seconds)
        rate = (self.processed() - before) / (time.monotonic() - began)
        self._order("pause")
        return rate

    def _order(self, what: str) -> None:
        assert self.browser.post(f"/v1/queues/{DRAINED}/{what}").status_code == 200

    def close(self) -> None:
        self.browser.close()
        super().close()


class OpenPage:
    """A page that is open in a browser: it asks again whenever the server says that something changed."""

    def __init__(self, url: str, path: str) -> None:
        self.refreshed, self.trouble = 0, list[Exception]()
        self._url, self._path, self._over = url, path, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as client:
            try:
                with client.stream("GET", "/live", headers={"accept": "text/event-stream"}) as stream:
                    self._follow(client, stream.iter_lines())
            except (httpx.HTTPError, AssertionError) as error:
                self.trouble.append(error)

    def _follow(self, client: httpx.Client, lines: Iterator[str]) -> None:
        for line in lines:
            if self._over.is_set():
                return
            if line == "event: look":
                answer = client.get(self._path, headers={"accept": "text/html", "tarry-refresh": "true"})
                assert answer.status_code == 200, (self._path, answer.status_code)
                self.refreshed += 1

    def end(self) -> None:
        """Lets it end with the next line of the stream, of which there is one every few seconds."""
        self._over.set()

    def join(self) -> None:
        """Returns once it has ended."""
        self._thread.join()


@contextmanager
def open_pages(place: LargePlace, paths: Sequence[str]) -> Iterator[list[OpenPage]]:
    """These pages are open meanwhile."""
    pages = [OpenPage(place.url, path) for path in paths]
    try:
        yield pages
    finally:
        for page in pages:
            page.end()
        for page in pages:
            page.join()
