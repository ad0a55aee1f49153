"""The resolver: shared lookups, the cache, and that only checked addresses are connected to."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from tarry.push.http import resolver
from tarry.push.http.address_guard import AddressGuard, ForbiddenAddress
from tarry.push.http.failure import Failure, FailureKind, RequestFailed
from tarry.push.http.http_sender import HttpRequest, Sender, SendLimits
from tarry.push.http.resolver import FAILED_FOR, FRESH_FOR, MOST_QUESTIONS, USABLE_FOR, Resolver
from tarry.push.http.response import HttpResponse
from tests.push.certificates import Authority
from tests.push.sending import until
from tests.push.server import Server


class FakeNameServer:
    """A name server with set answers that records the lookups."""

    def __init__(self, **says: Sequence[str] | Exception) -> None:
        self.says: dict[str, Sequence[str] | Exception] = dict(says)
        self.asked: list[str] = []
        self.open = threading.Event()
        self.open.set()

    def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        assert self.open.wait(15)
        said = self.says[host]
        if isinstance(said, Exception):
            raise said
        return said


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(work())


async def why(asking: Coroutine[Any, Any, Any]) -> tuple[FailureKind, str]:
    with pytest.raises(RequestFailed) as caught:
        await asking
    return caught.value.kind, str(caught.value)


def test_many_who_ask_make_one_question() -> None:
    names = FakeNameServer(a=["1.1.1.1", "2606:4700::1111"])

    async def work() -> None:
        names.open.clear()
        resolving = Resolver(AddressGuard(), names)
        asking = [asyncio.create_task(resolving.resolve("a", 443, 10)) for _ in range(100)]
        await until(lambda: bool(names.asked))
        names.open.set()
        assert await asyncio.gather(*asking) == [["1.1.1.1", "2606:4700::1111"]] * 100
        assert await resolving.resolve("a", 443, 10) == ["1.1.1.1", "2606:4700::1111"]

    run(work)
    assert names.asked == ["a"]


def test_one_who_gives_up_does_not_take_the_answer_from_the_others() -> None:
    names = FakeNameServer(a=["1.1.1.1"])

    async def work() -> None:
        names.open.clear()
        resolving = Resolver(AddressGuard(), names)
        first = asyncio.create_task(resolving.resolve("a", 443, 10))
        second = asyncio.create_task(resolving.resolve("a", 443, 10))
        await until(lambda: bool(names.asked))
        first.cancel()
        assert await why(resolving.resolve("a", 443, 0.05)) == (
            FailureKind.LOOKUP,
            "a: no name server answered within 0.05 s",
        )
        names.open.set()
        assert await second == ["1.1.1.1"]

    run(work)
    assert names.asked == ["a"]


def test_only_so_many_questions_at_once_and_who_waits_gives_up_in_time() -> None:
    names = FakeNameServer()

    async def work() -> None:
        names.open.clear()
        resolving = Resolver(AddressGuard(), names)
        asking = [why(resolving.resolve(f"h{n}", 443, 0.3)) for n in range(2 * MOST_QUESTIONS)]
        assert {told for told, _ in await asyncio.gather(*asking)} == {FailureKind.LOOKUP}
        assert len(names.asked) == MOST_QUESTIONS
        resolving.close()
        names.open.set()

    run(work)


def test_questions_that_hang_do_not_hold_up_new_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "HUNG_AFTER", 0.1)
    opened = threading.Event()

    def lookup(host: str) -> Sequence[str]:
        if host != "new":
            assert opened.wait(15)
        return ["1.1.1.1"]

    async def work() -> None:
        resolving = Resolver(AddressGuard(), lookup)
        hung = [asyncio.ensure_future(resolving.resolve(f"h{n}", 443, 10)) for n in range(MOST_QUESTIONS)]
        await asyncio.sleep(0)
        assert await resolving.resolve("new", 443, 10) == ["1.1.1.1"]
        assert not any(one.done() for one in hung)
        opened.set()
        assert await asyncio.gather(*hung) == [["1.1.1.1"]] * MOST_QUESTIONS, "a late answer is one"
        resolving.close()

    run(work)


def test_the_questions_that_hang_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "HUNG_AFTER", 0.01)
    monkeypatch.setattr(resolver, "MOST_THREADS", MOST_QUESTIONS + 3)
    names = FakeNameServer()

    async def work() -> None:
        names.open.clear()
        resolving = Resolver(AddressGuard(), names)
        asking = [why(resolving.resolve(f"h{n}", 443, 0.5)) for n in range(3 * MOST_QUESTIONS)]
        assert {told for told, _ in await asyncio.gather(*asking)} == {FailureKind.LOOKUP}
        assert len(names.asked) == MOST_QUESTIONS + 3
        resolving.close()
        names.open.set()

    run(work)


def test_an_answer_is_used_for_a_while_then_renewed_behind_the_back_then_awaited() -> None:
    names, clock = FakeNameServer(a=["1.1.1.1"]), Clock()

    async def work() -> None:
        resolving = Resolver(AddressGuard(), names, clock)
        await resolving.resolve("a", 443, 10)
        names.says["a"] = ["8.8.8.8"]
        clock.now += FRESH_FOR - 1
        assert await resolving.resolve("a", 443, 10) == ["1.1.1.1"]
        assert len(names.asked) == 1
        clock.now += 2
        assert await resolving.resolve("a", 443, 10) == ["1.1.1.1"]
        await until(lambda: len(names.asked) == 2 and not resolving._lookups)  # asked, and what came of it kept
        names.says["a"] = ["9.9.9.9"]
        clock.now += USABLE_FOR + 1
        assert await resolving.resolve("a", 443, 10) == ["9.9.9.9"]

    run(work)


def test_a_name_server_that_fails_does_not_take_away_what_was_known() -> None:
    names, clock = FakeNameServer(a=["1.1.1.1"]), Clock()

    async def work() -> None:
        resolving = Resolver(AddressGuard(), names, clock)
        await resolving.resolve("a", 443, 10)
        names.says["a"] = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        clock.now += FRESH_FOR + 1
        for n in range(3):
            assert await resolving.resolve("a", 443, 10) == ["1.1.1.1"]
            await until(lambda n=n: len(names.asked) == 2 + n and not resolving._lookups)  # type: ignore[misc]
            clock.now += FAILED_FOR + 0.1
        clock.now += USABLE_FOR
        assert await why(resolving.resolve("a", 443, 10)) == (
            FailureKind.LOOKUP,
            "a cannot be looked up: Temporary failure in name resolution",
        )

    run(work)


def test_a_failure_is_told_for_a_moment_only() -> None:
    names, clock = FakeNameServer(a=socket.gaierror(socket.EAI_NONAME, "Name or service not known")), Clock()

    async def work() -> None:
        resolving = Resolver(AddressGuard(), names, clock)
        for _ in range(5):
            assert await why(resolving.resolve("a", 443, 10)) == (FailureKind.NO_HOST, "a: no such host")
        assert len(names.asked) == 1
        names.says["a"] = ["1.1.1.1"]
        clock.now += FAILED_FOR + 0.1
        assert await resolving.resolve("a", 443, 10) == ["1.1.1.1"]

    run(work)


@pytest.mark.parametrize("error", [OSError("broken"), UnicodeError("label too long"), ValueError("odd")])
def test_whatever_goes_wrong_is_told(error: Exception) -> None:
    async def work() -> None:
        told = await why(Resolver(AddressGuard(), FakeNameServer(a=error)).resolve("a", 443, 10))
        assert told == (FailureKind.LOOKUP, f"a cannot be looked up: {error}")

    run(work)


def test_no_address_at_all() -> None:
    async def work() -> None:
        assert await why(Resolver(AddressGuard(), FakeNameServer(a=[])).resolve("a", 443, 10)) == (
            FailureKind.NO_HOST,
            "a has no address",
        )

    run(work)


def test_only_addresses_that_may_be_reached_are_used() -> None:
    async def work() -> None:
        resolving = Resolver(
            AddressGuard(), FakeNameServer(a=["10.0.0.1", "1.1.1.1", "::1"], b=["10.0.0.1", "127.0.0.1"])
        )
        assert await resolving.resolve("a", 443, 10) == ["1.1.1.1"]
        with pytest.raises(ForbiddenAddress, match=r"b is at 10\.0\.0\.1, private"):
            await resolving.resolve("b", 443, 10)

    run(work)


def test_an_address_where_nobody_is_comes_last() -> None:
    async def work() -> None:
        resolving = Resolver(AddressGuard(), FakeNameServer(a=["1.1.1.1", "8.8.8.8"]))
        await resolving.resolve("a", 443, 10)
        resolving.mark_unreachable("a", "1.1.1.1")
        assert await resolving.resolve("a", 443, 10) == ["8.8.8.8", "1.1.1.1"]

    run(work)


def test_it_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "MOST_HOSTS", 10)

    async def work() -> int:
        resolving = Resolver(AddressGuard(), lambda host: ["1.1.1.1"])
        for n in range(30):
            await resolving.resolve(f"h{n}", 443, 10)
        return len(resolving._cache)

    assert run(work) == 10


def test_the_system_knows_this_machine() -> None:
    assert "127.0.0.1" in resolver.system_lookup("localhost")


def test_the_system_is_asked_for_names_that_no_system_has() -> None:
    with pytest.raises(socket.gaierror):
        resolver.system_lookup("no-such-host.invalid")


def send(names: FakeNameServer, url: str, times: int = 1) -> list[HttpResponse | Failure]:
    async def work() -> list[HttpResponse | Failure]:
        sending = Sender(AddressGuard(["127.0.0.0/24"]), lookup=names)
        got = [await sending.send(HttpRequest("POST", url, (), b"{}"), SendLimits(10, 2)) for _ in range(times)]
        await sending.close()
        return got

    got = run(work)
    assert isinstance(got, list)
    return got


def test_the_address_that_was_judged_is_the_one_that_is_connected_to() -> None:
    """A name that changes its address after it was judged leads where it was then."""
    with Server(address="127.0.0.9") as server:
        names = FakeNameServer(**{"rebinding.example": ["127.0.0.9"]})

        async def work() -> None:
            sending = Sender(AddressGuard(["127.0.0.9"]), lookup=names)
            url = server.url("/", "rebinding.example")
            for _ in range(3):
                got = await sending.send(HttpRequest("POST", url, (), b"{}"), SendLimits())
                assert isinstance(got, HttpResponse)
                assert got.address == f"127.0.0.9:{server.port}"
                names.says["rebinding.example"] = ["127.0.0.1"]
            await sending.close()

        run(work)
        assert len(server.seen) == 3


def test_a_name_that_no_system_knows_is_connected_to_all_the_same() -> None:
    """The HTTP library asks nobody itself."""
    with Server() as server:
        (got,) = send(FakeNameServer(**{"hooks.invalid": ["127.0.0.1"]}), server.url("/", "hooks.invalid"))
    assert isinstance(got, HttpResponse)


def test_of_several_addresses_the_first_where_somebody_listens() -> None:
    with Server() as server:
        names = FakeNameServer(**{"hooks.example": ["127.0.0.3", "127.0.0.2", "127.0.0.1"]})
        first, second = send(names, server.url("/", "hooks.example"), 2)
    assert isinstance(first, HttpResponse)
    assert isinstance(second, HttpResponse)
    assert first.address == second.address == f"127.0.0.1:{server.port}"
    assert len(server.seen) == 2


def test_a_host_that_moves_is_followed(authority: Authority) -> None:
    """The old client is closed with its connections once a new one is there."""

    async def work(one: Server, port: int) -> None:
        names, clock = FakeNameServer(**{"hooks.example": ["127.0.0.1"]}), Clock()
        sending = Sender(AddressGuard(["127.0.0.0/24"]), authority.pem, lookup=names)
        sending._resolver = Resolver(AddressGuard(["127.0.0.0/24"]), names, clock)
        request = HttpRequest("POST", one.url("/", "hooks.example"), (), b"{}")
        assert isinstance(await sending.send(request, SendLimits()), HttpResponse)
        names.says["hooks.example"] = ["127.0.0.2"]
        clock.now += USABLE_FOR + 1
        got = await sending.send(request, SendLimits())
        assert isinstance(got, Failure)
        assert got.address == f"127.0.0.2:{port}"
        await until(lambda: one.ended == 1)
        assert len(sending._with_tls._clients) == 1
        await sending.close()

    with Server(authority.sign(["hooks.example"])) as one:
        asyncio.run(work(one, one.port))
