import datetime
import os
import threading
import time
from typing import Any

import msgspec
import pytest

from tarry.model.duration import SECOND
from tarry.model.overrides import cost_of
from tests.cli.project import Project

ID = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def body(project: Project, *words: object) -> Any:
    """The arguments, as the job that was put has them."""
    return msgspec.json.decode(project.job(project.enqueue("app.add", *words)).body)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (("[1, 2]",), [1, 2]),
        (('{"a": 1, "b": 2}',), {"a": 1, "b": 2}),
        (("1", "2"), [1, 2]),
        (("1",), [1]),
        (("[1]",), [1]),
    ],
)
def test_arguments_are_an_array_an_object_or_values_one_by_one(
    project: Project, words: tuple[str, ...], kept: Any
) -> None:
    assert body(project, *words) == kept


def test_a_task_without_arguments(project: Project) -> None:
    project.write("app.py", "from tarry import App\napp = App()\n@app.task\ndef tidy() -> None: ...\n")
    assert project.job(project.enqueue("app.tidy")).body == b"[]"


def test_the_id_is_printed(project: Project) -> None:
    id = project.enqueue("app.add", "1")
    (job,) = project.facts("jobs", "list")["jobs"]
    assert job["id"] == id
    assert project.facts("enqueue", "app.add", "2").keys() == {"id", "is_new"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("app.add", '["one"]'), "a"),
        (("app.add", '{"a": 1, "c": 2}'), "c"),
        (("app.add", "[1, 2, 3]"), "app.add"),
        (("app.add",), "a"),
        (("app.add", "--batch", "lines"), "lines cannot be read: No such file or directory"),
        (("app.add", "--batch", "."), ". cannot be read: Is a directory"),
    ],
)
def test_what_cannot_be_is_one_line_and_nothing_is_stored(project: Project, words: tuple[str, ...], told: str) -> None:
    assert told in project.refused("enqueue", *words)
    assert project.jobs() == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "name the task to enqueue"),
        (("app.add", "one"), "quote text twice, as in '\"ann@example.org\"'"),
        (("app.add", "[1"), "write it as in '[\"ann\", 3]'"),
        (("app.add", "1", "--delay", "soon"), "'soon' is no duration"),
        (("app.add", "1", "--delay", "-5"), "-5"),
        (("app.add", "1", "--at", "soon"), "--at 'soon' is no time: write it as in 2030-12-31T23:59"),
        (("app.add", "1", "--at", "2030-01-01", "--delay", "5"), "give one of them"),
        (("app.add", "1", "--priority", "9999999999999"), "priority=9999999999999"),
        (("app.add", "1", "--expires", "x"), "'x' is no duration"),
        (("app.add", "1", "--label", "customer"), "write NAME=VALUE, such as customer=7"),
        (("app.add", "1", "--label", "a b=7"), "a name has no `=`"),
        (("app.add", "1", "--cost", "0"), "cost=0: how many starts a rate counts, from 1 to"),
        (("--batch", "app.py", "--cost", "3"), "without a TASK each line has options of its own"),
        (("--batch", "app.py", "--label", "customer=7"), "without a TASK each line has options of its own"),
        (("app.add", "1", "--batch", "app.py"), "the arguments are given twice"),
        (("--batch", "app.py", "--priority", "3"), "without a TASK each line has options of its own"),
    ],
)
def test_a_wrong_call_is_one_line_and_nothing_is_stored(project: Project, words: tuple[str, ...], told: str) -> None:
    assert told in project.misused("enqueue", *words)
    assert project.jobs() == []


def test_a_job_says_what_it_costs(project: Project) -> None:
    """Here and in a line of a file; more than a rate lets start is refused with both numbers."""
    limited = "from tarry import App\napp = App()\n@app.task(rate='10/m')\ndef ask(n: int) -> int: return n\n"
    project.write("app.py", limited)
    project.enqueue("app.ask", "1", "--cost", "3")
    project.write("lines", '{"task": "app.ask", "args": [2], "cost": 4}\n')
    project.said("enqueue", "--batch", "lines")
    assert sorted(cost_of(job.headers) for job in project.jobs()) == [3, 4]
    told = "cost=11 is more than task:app.ask lets start in a whole period: 10 in 60 s"
    assert told in project.refused("enqueue", "app.ask", "1", "--cost", "11")
    project.write("lines", '{"task": "app.ask", "args": [2], "cost": 11}\n')
    assert f"lines, line 1: {told}; nothing was stored" in project.refused("enqueue", "--batch", "lines")
    assert len(project.jobs()) == 2


def test_the_wrong_argument_is_named_with_what_it_should_be(project: Project) -> None:
    said = project.refused("enqueue", "app.add", '{"a": "one"}')
    assert "app.add" in said
    assert "int" in said
    assert " a" in said


def test_too_large_a_body_is_refused(project: Project) -> None:
    project.settings('max_body = "1KB"\n')
    said = project.refused("enqueue", "app.greet", f'"{"x" * 2000}"')
    assert "max_body is 1000" in said


def test_a_task_that_the_app_does_not_know_is_refused(project: Project) -> None:
    way_out = "--force puts it for workers that know it"
    said = project.refused("enqueue", "app.gret", '"Ann"')
    assert said == f"the app app:app has no task app.gret; did you mean app.greet? {way_out}"
    assert project.refused("enqueue", "other.task") == f"the app app:app has no task other.task; {way_out}"
    project.write("lines", '{"task": "app.add", "args": [1]}\n{"task": "app.ad", "args": [1]}\n')
    assert "app.ad; did you mean app.add?" in project.refused("enqueue", "--batch", "lines")
    assert "app.ad; did you mean app.add?" in project.refused("enqueue", "app.ad", "--batch", "lines", stdin="")
    assert project.jobs() == []


def test_a_task_that_only_workers_know_is_put_by_force(project: Project) -> None:
    job = project.job(project.said("enqueue", "other.task", '["x", {"y": null}]', "--force"))
    assert (job.task, job.queue, msgspec.json.decode(job.body)) == ("other.task", "default", ["x", {"y": None}])


def test_options_come_from_the_task(project: Project) -> None:
    job = project.job(project.enqueue("app.greet", '"Ann"'))
    assert (job.queue, job.priority, job.key, job.expires, job.state) == ("mail", 5, None, 0, "ready")


def test_options_of_one_call_come_first(project: Project) -> None:
    words = ("--queue", "slow", "--priority", "-7", "--key", "ann", "--expires", "1h")
    job = project.job(project.enqueue("app.greet", '"Ann"', *words))
    assert (job.queue, job.priority, job.key) == ("slow", -7, "ann")
    assert job.expires == pytest.approx((time.time() + 3600) * SECOND, abs=60 * SECOND)


def test_labels_of_one_call_or_of_each_line(project: Project) -> None:
    id = project.enqueue("app.greet", '"Ann"', "--label", "customer=7", "--label", "note=a=b c")
    assert project.job(id).labels == {"customer": "7", "note": "a=b c"}
    project.write(
        "lines", '{"task": "app.add", "args": [1], "labels": {"customer": "8"}}\n{"task": "app.add", "args": [1]}\n'
    )
    project.said("enqueue", "--batch", "lines")
    project.write("more", "[1]\n")
    project.said("enqueue", "app.add", "--batch", "more", "--label", "customer=9")
    assert [job.labels for job in project.jobs()][1:] == [{"customer": "8"}, {}, {"customer": "9"}]


@pytest.mark.parametrize(("delay", "seconds"), [("90", 90), ("1h30m", 5400), ("0.5", 0.5)])
def test_a_delay_is_seconds_or_a_text(project: Project, delay: str, seconds: float) -> None:
    job = project.job(project.enqueue("app.add", "1", "--delay", delay))
    assert job.due - job.created == pytest.approx(seconds * SECOND, abs=0.1 * SECOND)


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "UTC"])
def test_a_time_without_a_zone_is_this_machines(project: Project, zone: str) -> None:
    hours = {"Asia/Tokyo": 9, "UTC": 0}[zone]
    job = project.job(project.said("enqueue", "app.add", "1", "--at", "2040-05-06T07:08:09", TZ=zone))
    there = datetime.datetime(2040, 5, 6, 7, 8, 9, tzinfo=datetime.timezone(datetime.timedelta(hours=hours)))
    assert job.due == there.timestamp() * SECOND
    assert job.state == "scheduled"


def test_a_time_with_a_zone(project: Project) -> None:
    job = project.job(project.enqueue("app.add", "1", "--at", "2040-05-06T07:08:09+02:00"))
    assert job.due == datetime.datetime(2040, 5, 6, 5, 8, 9, tzinfo=datetime.UTC).timestamp() * SECOND


def test_a_job_that_waits_is_replaced_by_the_newest(project: Project) -> None:
    first = project.facts("enqueue", "app.add", "1", "--key", "k", "--running", "cancel")
    second = project.facts("enqueue", "app.add", "2", "--key", "k", "--running", "cancel")
    assert second == {"id": first["id"], "is_new": False}
    project.write("lines", "[3]\n[4]\n")
    batch = "enqueue", "app.add", "--batch", "lines", "--key", "k", "--running", "cancel"
    assert project.said(*batch) == "0 jobs stored, 2 were there already"
    assert [job.body for job in project.jobs()] == [b"[4]"]
    assert "give key= too" in project.refused("enqueue", "app.add", "1", "--running", "cancel", status=2)


def test_the_first_of_a_key_is_due_at_once_and_the_newest_later(project: Project) -> None:
    burst = "--key", "k", "--delay", "1h", "--on-duplicate", "replace", "--max-delay", "2h", "--leading"
    ids = [project.facts("enqueue", "app.add", str(number), *burst)["id"] for number in range(3)]
    assert ids[1] == ids[2] != ids[0]
    assert {job.body: job.state for job in project.jobs()} == {b"[0]": "ready", b"[2]": "scheduled"}
    assert "give a delay longer" in project.refused("enqueue", "app.add", "1", *burst[:2], *burst[4:], status=2)


def test_a_key_that_is_taken_gives_the_first_job(project: Project) -> None:
    first = project.facts("enqueue", "app.add", "1", "--key", "k")
    second = project.facts("enqueue", "app.add", "2", "--key", "k")
    assert first["is_new"]
    assert second == {"id": first["id"], "is_new": False}


@pytest.mark.parametrize("source", ["lines", "-"])
def test_a_batch_of_one_task(project: Project, source: str) -> None:
    text = '[1, 2]\n\n{"a": 3}\n[4]\n'
    project.write("lines", text)
    stdin = text if source == "-" else ""
    assert project.said("enqueue", "app.add", "--batch", source, "--priority", "3", stdin=stdin) == "3 jobs stored"
    jobs = project.jobs()
    assert [job.body for job in jobs] == [b"[1,2]", b'{"a":3}', b"[4]"]
    assert {job.priority for job in jobs} == {3}


@pytest.mark.parametrize("source", ["lines", "-"])
def test_a_batch_of_any_tasks(project: Project, source: str) -> None:
    lines = [
        {"task": "app.add", "args": [1, 2]},
        {"task": "app.greet", "args": {"name": "Ann"}, "queue": "slow", "priority": -1, "delay": "1h"},
        {"task": "app.add", "args": [3], "key": "k", "expires": 60},
        {"task": "app.add", "args": [4], "key": "k", "at": "2040-01-01T00:00:00Z"},
        {"task": "app.unknown"},
    ]
    text = "".join(msgspec.json.encode(line).decode() + "\n" for line in lines)
    project.write("lines", text)
    stdin = text if source == "-" else ""
    facts = msgspec.json.decode(project.tarry("--json", "enqueue", "--batch", source, "--force", stdin=stdin).out)
    assert facts == {"stored": 4, "already_there": 1}
    add, greet, keyed, unknown = project.jobs()
    assert (greet.queue, greet.priority, greet.state) == ("slow", -1, "scheduled")
    assert (add.queue, keyed.key, keyed.body, unknown.body) == ("default", "k", b"[3]", b"[]")


def test_a_batch_says_how_many_were_there_already(project: Project) -> None:
    project.write("lines", '{"task": "app.add", "args": [1], "key": "k"}\n' * 3)
    assert project.said("enqueue", "--batch", "lines") == "1 job stored, 2 were there already"


@pytest.mark.parametrize(
    "bad",
    [
        "[1",
        '"scalar"',
        '["one"]',
        '{"c": 1}',
        "[1, 2, 3]",
    ],
)
def test_one_bad_line_and_nothing_is_stored(project: Project, bad: str) -> None:
    project.write("lines", "".join(f"[{n}]\n" for n in range(1500)) + bad + "\n[1]\n")
    said = project.refused("enqueue", "app.add", "--batch", "lines")
    assert said.startswith("lines, line 1501: ")
    assert said.endswith("; nothing was stored")
    assert project.jobs() == []


@pytest.mark.parametrize(
    "bad",
    [
        '{"args": [1]}',
        '{"task": "app.add", "arguments": [1]}',
        '{"task": "app.add", "args": 1}',
        '{"task": "app.add", "args": [1], "delay": "soon"}',
        '{"task": "app.add", "args": [1], "priority": 1.5}',
        "[1]",
    ],
)
def test_one_bad_line_of_a_batch_of_any_tasks(project: Project, bad: str) -> None:
    good = '{"task": "app.add", "args": [1]}\n'
    said = project.refused("enqueue", "--batch", "-", stdin=good + bad + "\n" + good)
    assert said.startswith("standard input, line 2: ")
    assert project.jobs() == []


def test_an_empty_batch_is_no_error(project: Project) -> None:
    project.write("lines", "")
    assert project.said("enqueue", "app.add", "--batch", "lines") == "0 jobs stored"


def test_a_pipe_is_read_like_a_file(project: Project) -> None:
    pipe = project.directory / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("[1]\n[2]\n",))
    writer.start()
    assert project.said("enqueue", "app.add", "--batch", "pipe") == "2 jobs stored"
    writer.join()


def test_twenty_thousand_lines(project: Project) -> None:
    project.write("lines", "".join(f"[{n}, 1]\n" for n in range(20_000)))
    began = time.monotonic()
    assert project.said("enqueue", "app.add", "--batch", "lines") == "20,000 jobs stored"
    took = time.monotonic() - began
    print(f"20,000 lines in {took:.2f} s")
    assert took < 20
    assert [msgspec.json.decode(job.body)[0] for job in project.jobs()] == list(range(20_000))


def test_a_batch_of_a_task_that_only_workers_know(project: Project) -> None:
    project.write("lines", "[1]\n" * 50)
    assert project.said("enqueue", "other.task", "--batch", "lines", "--force") == "50 jobs stored"
