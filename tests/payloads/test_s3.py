"""Payloads in S3: a real server of it, by HTTP."""

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tarry import App
from tarry.errors import ConfigError, JobFailed, PayloadLost, PayloadUnavailable
from tarry.store.payloads import s3_place, sweep
from tarry.store.payloads.s3_place import S3Place
from tests.payloads.conftest import LARGE, Give, run
from tests.servers.moto import S3Server, running_s3


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


@pytest.fixture(autouse=True)
def s3(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    for name in server.names():
        server.client().delete_object(Bucket="jobs", Key=name)
    return server


@pytest.fixture
def app(tmp_path: Path, keep_apart: Give) -> Iterator[App]:
    app = keep_apart(App(f"sqlite:///{tmp_path}/jobs.db", closures=True), to="s3://jobs/shop/large")
    yield app
    app.close()


@pytest.fixture
def echo(app: App) -> Any:
    @app.task(name="echo", retry=None)
    def echo(text: str) -> str:
        return text

    return echo


def payloads(server: S3Server) -> list[str]:
    return [name for name in server.names() if not name.endswith("/store")]


@contextmanager
def patient_server(answer: bytes, drip: bytes = b"") -> Iterator[str]:
    """Answers so, and then goes on with the drip for ever."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                try:
                    client = listening.accept()[0]
                except OSError:
                    return
                with client:
                    client.recv(65536)
                    client.sendall(answer)
                    while drip and not ended.wait(0.01):
                        try:
                            client.sendall(drip)
                        except OSError:
                            break

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ended.set()
            listening.close()


def test_arguments_and_result(app: App, echo: Any, s3: S3Server) -> None:
    job = run(app, echo.enqueue(LARGE))
    assert job.result() == LARGE
    assert len(payloads(s3)) == 2
    assert all(name.startswith("shop/large/") for name in s3.names())


def test_a_large_one(s3: S3Server) -> None:
    place, data = S3Place("s3://jobs"), os.urandom(20_000_000)
    place.write("a/b", data)
    assert place.read("a/b", 30_000_000) == data
    assert place.read("a/b", 10) == data[:10]
    assert place.read("a/c", 10) is None


def test_pages_are_in_order_and_others_are_left_out(s3: S3Server) -> None:
    place = S3Place("s3://jobs/p")
    for number in range(7):
        place.write(f"ours/{number}", b"1")
    place.write("ours2/1", b"1")
    first = place.page("ours", "", 3)
    second = place.page("ours", first[-1].name, 10)
    assert [one.name for one in first + second] == [f"ours/{number}" for number in range(7)]
    assert abs(place.time_of("ours/1") - first[1].written) < 1
    place.delete([*(one.name for one in first), "ours/never"])
    assert len(place.page("ours", "", 10)) == 4


def test_a_sweep(app: App, echo: Any, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "OLD", -10.0)
    monkeypatch.setattr(sweep, "EVERY", 0)
    monkeypatch.setattr(sweep, "_HOLD_FOR", 0)
    kept, gone = echo.using(delay="1h").enqueue(LARGE), echo.using(delay="1h").enqueue(LARGE)
    app.client.forget(gone.raw_id)
    store = app.client.store
    chore = sweep.PayloadSweep(store.payloads, "ann", store.time)  # type: ignore[attr-defined]
    while chore.step():
        pass
    assert [kept.raw_id.hex() in name for name in payloads(s3)] == [True]


def test_no_such_bucket_is_no_lost_job(keep_apart: Give, tmp_path: Path) -> None:
    app = keep_apart(App(f"sqlite:///{tmp_path}/jobs.db", closures=True), to="s3://other-bucket")

    @app.task(name="echo")
    def echo(text: str) -> str:
        return text

    with pytest.raises(PayloadUnavailable, match=r"s3://other-bucket cannot be written: .*NoSuchBucket"):
        echo.enqueue(LARGE)
    with pytest.raises(PayloadUnavailable, match="NoSuchBucket"):
        S3Place("s3://other-bucket").read("a", 1)
    app.close()


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(PayloadUnavailable, match="s3://jobs cannot be read: Could not connect"):
            S3Place("s3://jobs").read("a", 1)


def test_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(PayloadUnavailable, match=r"s3://jobs cannot be read: no credentials; set AWS_ACCESS_KEY_ID"):
        S3Place("s3://jobs").read("a", 1)


def test_an_answer_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 100000000\r\n\r\n"
    with patient_server(head, b"x" * 1000) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        assert S3Place("s3://jobs").read("a", 5000) == b"x" * 5000
        monkeypatch.setattr(s3_place, "READ_WITHIN", -1.0)
        with pytest.raises(PayloadUnavailable, match="not all of it came"):
            S3Place("s3://jobs").read("a", 5000)


def test_another_program_at_that_address_is_no_lost_job(monkeypatch: pytest.MonkeyPatch) -> None:
    page = b"<html>nothing here</html>"
    answer = b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page)
    with patient_server(answer) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        place = S3Place("s3://jobs/shop")
        calls = (
            lambda: place.read("a", 10), lambda: place.write("a", b"x"), lambda: place.delete(["a"]),
            lambda: place.page("n", "", 10), lambda: place.time_of("a"),
        )  # fmt: skip
        for call in calls:
            with pytest.raises(PayloadUnavailable, match="s3://jobs/shop cannot be"):
                call()


def test_an_answer_that_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with patient_server(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf") as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
        with pytest.raises(PayloadUnavailable, match="s3://jobs cannot be read"):
            S3Place("s3://jobs").read("a", 100)


def test_other_bytes_are_no_arguments(app: App, echo: Any, s3: S3Server) -> None:
    job = echo.enqueue(LARGE)
    s3.client().put_object(Bucket="jobs", Key=payloads(s3)[0], Body=b"[]")
    with pytest.raises(JobFailed, match="s3://jobs/shop/large has other bytes"):
        run(app, job).result()
    with pytest.raises(PayloadLost):
        app.client.store.load_arguments(job.record())


def test_a_child_uses_it_after_its_parent(s3: S3Server) -> None:
    place = S3Place("s3://jobs")
    place.write("a", b"data")
    if not (pid := os.fork()):
        try:
            os._exit(0 if place.read("a", 10) == b"data" else 1)
        except BaseException:
            logging.exception("in the child")
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert place.read("a", 10) == b"data"


def test_without_boto3_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, keep_apart: Give) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    monkeypatch.delitem(__import__("sys").modules, "tarry.store.payloads.s3_place")
    with pytest.raises(ConfigError, match=r"pip install 'tarry\[s3\]'"):
        keep_apart(App("memory://"), to="s3://jobs").open_store()
