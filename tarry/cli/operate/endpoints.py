"""`tarry endpoints`, in words: the health of the endpoints of HTTP tasks, and the acts that mend them."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tarry.cli.operate.method_command import CommandCall, Subject, add_methods
from tarry.cli.shared.printing import print_table
from tarry.client.operations.operation import OperationRecord
from tarry.model.duration import SECOND, format_duration
from tarry.model.quantity import quantity
from tarry.operate.endpoints import METHODS, EndpointList
from tarry.push.endpoint_records import EndpointDetail, EndpointRecord
from tarry.terminal import print_line


def _print_list(_: CommandCall, found: EndpointList) -> None:
    print_table(
        ("task", "endpoint", "circuit", "running", "at once", "waiting", "last error"),
        [
            (one.task, one.to, _circuit(one), one.in_flight, _or_dash(one.at_once), one.waiting, one.trouble)
            for one in found.endpoints
        ],
    )


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


def _circuit(one: EndpointRecord) -> str:
    return one.circuit if one.enabled else "paused"


def _print_details(call: CommandCall, _: Sequence[str], found: Sequence[EndpointDetail]) -> None:
    for one in found:
        print_line("\n".join(_lines(one.endpoint, call.client.clock.now() / SECOND)))
        print_line(f"answers in the last hour: {_statuses(one.hour)}; in the last 24 hours: {_statuses(one.day)}")
        if one.exchanges:
            print_table(
                ("began", "job", "attempt", "outcome", "status", "took", "reason"),
                [
                    (each.at, each.id, each.attempt, each.outcome, each.status or "-", _span(each.elapsed), each.reason)
                    for each in one.exchanges
                ],
            )


def _lines(one: EndpointRecord, now: float) -> Iterator[str]:
    yield f"{one.task} sends to {one.to}"
    since = f" for {_span(now - one.since)}" if one.since else ""
    opens = f", asked again in {_span(one.opens - now)}" if one.opens else ""
    yield f"circuit: {_circuit(one)}{since}{opens}{one.trouble and f' ({one.trouble})'}"
    bound = f", {one.bound} at most" if one.bound else ""
    yield f"requests: {one.in_flight} of {_or_dash(one.at_once)} at once{bound}; {quantity(one.waiting, 'job')} waiting"
    if one.shared_with:
        yield f"same host: {', '.join(one.shared_with)}"


def _statuses(found: dict[int, int]) -> str:
    return ", ".join(f"{status} {number:,} times" for status, number in sorted(found.items())) or "none"


def _span(seconds: float) -> str:
    return format_duration(max(0, round(seconds * SECOND)))


def _print_each(said: str) -> Callable[..., None]:
    return lambda _, names, found: print_line("\n".join(said.format(name) for name in names))


def _print_sent(_: CommandCall, names: Sequence[str], found: Sequence[OperationRecord]) -> None:
    for one in found:
        number, sent = (one.matched, "would be sent") if one.dry_run else (one.changed, "sent")
        print_line(f"{quantity(number)} {sent} again")


SUBJECT = Subject(
    METHODS,
    {
        "list": _print_list,
        "show": _print_details,
        "pause": _print_each("deliveries of {} are paused"),
        "resume": _print_each("deliveries of {} are resumed"),
        "close": _print_each("the circuit of {} is closed"),
        "probe": _print_each("{} is tried with its next job"),
        "replay": _print_sent,
    },
    "list the endpoints of HTTP tasks; pause, resume, try or close them; send again what failed",
    """Each HTTP task has an endpoint. pause: its jobs wait. close: the circuit is closed by hand. probe: one request is
    sent now, whose outcome closes the circuit or opens it again. replay: what ended since then starts anew, in the
    background of this command; Ctrl-C stops it.""",
    names="TASK",
)
add = partial(add_methods, "endpoints", SUBJECT)
