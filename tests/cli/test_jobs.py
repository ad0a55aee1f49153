import pty
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.outcome import Raised, Returned, note
from tarry.model.overrides import as_headers
from tarry.model.retry import Retry
from tarry.store import ids
from tarry.store.base import BANDS, Want
from tests.cli.project import Place, until

NOBODY = "01a1fdd3-717b-7374-861e-7ba6a7da9033"


def states(place: Place) -> dict[str, str]:
    return {ids.text(job.id): job.state for job in place.jobs()}


def finish(place: Place, outcome: Any, ago: int = 0) -> None:
    """A worker came by, so many seconds ago, and ran all that is ready."""
    with place.store() as store:
        now = store.time()
        queues = list(store.queues())
        wants = [Want(queue, band, 1000) for queue in queues for band in BANDS]
        jobs = store.claim(wants, 1000, "somebody", 30 * SECOND, now)
        now -= ago * SECOND
        store.apply([lifecycle.after(job, outcome, lifecycle.DEFAULT, now) for job in jobs], now)


def run_one(place: Place, id: str) -> None:
    """A worker is at this job, which is the only one ready."""
    with place.store() as store:
        (job,) = store.claim([Want("default", 0, 1)], 1, "somebody", 30 * SECOND, store.time())
    assert ids.text(job.id) == id


@pytest.fixture
def mixed(place: Place) -> list[str]:
    """One each of done, dead, ready in mail, scheduled."""
    (done,) = place.put("app.add", 1)
    finish(place, Returned(b"1"))
    (dead,) = place.put("app.fail", "no")
    finish(place, Raised(note("ValueError", "no", "Traceback: here\n"), ("ValueError",)))
    return [done, dead, *place.put("app.greet", "Ann", queue="mail"), *place.put("app.add", 2, delay="1h")]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ((), [0, 1, 2, 3]),
        (("--queue", "mail"), [2]),
        (("--task", "app.add"), [0, 3]),
        (("--state", "dead"), [1]),
        (("--state", "dead", "--state", "done"), [0, 1]),
        (("--task", "app.add", "--state", "scheduled"), [3]),
        (("--older", "1h"), []),
        (("--older", "0"), [0, 1, 2, 3]),
        (("--limit", "2"), [0, 1]),
    ],
)
def test_list_narrows(place: Place, mixed: list[str], words: tuple[str, ...], found: list[int]) -> None:
    assert [job["id"] for job in place.facts("jobs", "list", *words)] == [mixed[n] for n in found]
    shown = place.said("jobs", *words).splitlines()
    assert [line.split()[0] for line in shown if line[:2] == "01"] == [mixed[n] for n in found]
    assert ("--limit shows more" in shown[-1]) == ("--limit" in words)


def test_show_tells_everything(place: Place, mixed: list[str]) -> None:
    done, dead = place.facts("jobs", "show", *mixed[:2])
    assert (done["state"], done["args"], done["note"], done["attempt"]) == ("done", [1], 1, 1)
    assert (dead["state"], dead["failures"], dead["note"]["message"]) == ("dead", 1, "no")
    said = place.said("jobs", "show", *mixed[:2])
    assert "result    1\n" in said
    assert said.endswith("Traceback: here")
    assert f"id        {dead['id']}" in said


def attempts(place: Place, id: str) -> tuple[str, str, tuple[int, int | None]]:
    """What show, list and --json tell of a job's attempts."""
    (shown,) = [line for line in place.said("jobs", "show", id).splitlines() if line.startswith("attempt ")]
    (listed,) = [line for line in place.said("jobs", "list").splitlines() if line.startswith(id)]
    (facts,) = place.facts("jobs", "show", id)
    assert place.facts("jobs", "list")[0]["attempts"] == facts["attempts"]
    return shown.removeprefix("attempt").strip(), " ".join(listed.split()[5:8]), (facts["attempt"], facts["attempts"])


@pytest.mark.parametrize(("task", "shown", "most"), [("app.greet", "2 of 4", 4), ("nosuch", "2", None)])
def test_show_and_list_tell_which_attempt_of_how_many(place: Place, task: str, shown: str, most: int | None) -> None:
    with place.store() as store:
        id, now = ids.uuid7(), store.time()
        store.insert([Job(id, task, b"[]", due=now, since=now, failures=1)])
    said, listed, facts = attempts(place, ids.text(id))
    assert (said, facts) == (shown, (2, most))
    assert ("of" in listed) == (most is not None)


def test_a_jobs_own_rule_tells_how_many_attempts_it_has(place: Place) -> None:
    headers = msgspec.json.encode(as_headers(None, Retry(4, per={KeyError: Retry(6)})))
    with place.store() as store:
        id, now = ids.uuid7(), store.time()
        store.insert([Job(id, "unknown", b"[]", due=now, since=now, failures=1, headers=headers)])
    assert attempts(place, ids.text(id)) == ("2 of 7", "2 of 7", (2, 7))


def test_show_and_list_tell_how_far_a_job_is(place: Place) -> None:
    (id,) = place.put("app.add", 1)
    assert place.facts("jobs", "show", id)[0]["progress"] is None
    run_one(place, id)
    with place.store() as store:
        store.mark("somebody", [(ids.parsed(id), 1, b'[0.425,"rows"]')])
    assert place.facts("jobs", "list")[0]["progress"] == {"fraction": 0.425, "message": "rows"}
    assert "progress  42% rows\n" in place.said("jobs", "show", id) + "\n"


def test_an_id_may_be_written_as_status_and_logs_write_it(place: Place, mixed: list[str]) -> None:
    (job,) = place.facts("jobs", "show", mixed[0].replace("-", ""))
    assert job["id"] == mixed[0]


def test_retry_cancel_and_delete_by_id(place: Place, mixed: list[str]) -> None:
    done, dead, ready, scheduled = mixed
    assert place.job(dead).attempt == 1, "of the one that failed, not one that will never come"
    assert place.said("jobs", "retry", dead, scheduled) == f"{dead} made ready\n{scheduled} made ready"
    assert place.said("jobs", "cancel", ready) == f"{ready} cancelled"
    assert place.facts("jobs", "delete", done) == {done: True}
    assert states(place) == {dead: "ready", ready: "cancelled", scheduled: "ready"}
    assert place.job(dead).attempt == 1


def test_what_cannot_be_changed_is_left_and_told(place: Place) -> None:
    running = place.enqueue("app.add", "1")
    run_one(place, running)
    for action in ("retry", "delete"):
        ran = place.tarry("jobs", action, running)
        assert (ran.status, ran.out) == (1, f"{running} left as it is: running\n")
    ran = place.tarry("jobs", "cancel", running, "--json")
    assert (ran.status, msgspec.json.decode(ran.out)) == (0, {running: True})
    ran = place.tarry("jobs", "cancel", running)
    assert (ran.status, ran.out) == (1, f"{running} left as it is: cancelled\n")


@pytest.mark.parametrize("action", ["show", "retry", "cancel", "delete"])
def test_a_job_that_is_not_there(place: Place, mixed: list[str], action: str) -> None:
    assert place.refused("jobs", action, mixed[3], NOBODY).startswith(f"no job {NOBODY}: ")
    assert states(place)[mixed[3]] == "scheduled"
    assert "no-id" in place.refused("jobs", action, "no-id")


@pytest.mark.parametrize("action", ["retry", "cancel", "delete"])
def test_changing_all_of_them_has_to_be_said(place: Place, mixed: list[str], action: str) -> None:
    assert place.misused("jobs", action, "--yes") == (
        f"{action} which jobs? Give ids, or narrow with --queue --task --key --state --older --since"
    )
    assert place.misused("jobs", "show") == "which job? tarry jobs show ID"


def test_ids_and_a_narrowing_together_are_refused(place: Place, mixed: list[str]) -> None:
    assert "not both" in place.misused("jobs", "delete", mixed[0], "--state", "dead")
    assert "not both" in place.misused("jobs", "show", mixed[0], "--queue", "mail")
    assert len(states(place)) == 4


@pytest.mark.parametrize("action", ["retry", "cancel", "delete"])
def test_many_are_not_changed_without_a_yes_where_nobody_can_be_asked(place: Place, action: str) -> None:
    ready = place.enqueue("app.add", "1")
    ran = place.tarry("jobs", action, "--state", "ready")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == f"1 job matches; {action} it? Not asked, since this is no terminal: add --yes.\n"
    assert states(place) == {ready: "ready"}


def test_many_are_changed_page_by_page(place: Place) -> None:
    place.put("app.add", 1, times=2500)
    (kept,) = place.put("app.greet", "Ann")
    assert place.facts("jobs", "cancel", "--task", "app.add", "--yes") == {"matched": 2500, "changed": 2500}
    said = place.said("jobs", "retry", "--task", "app.add", "--state", "cancelled", "--yes")
    assert said == "2,500 of 2,500 jobs made ready"
    assert place.said("jobs", "delete", "--task", "app.add", "--yes") == "2,500 of 2,500 jobs deleted"
    assert states(place) == {kept: "ready"}


def test_no_match_is_told_in_both_ways(place: Place) -> None:
    assert place.said("jobs", "cancel", "--state", "dead") == "No job matches."
    assert place.facts("jobs", "cancel", "--state", "dead") == {"matched": 0, "changed": 0}


def test_only_those_for_long_in_their_state(place: Place) -> None:
    (old,) = place.put("app.add", 1)
    until(lambda: time.time() > place.job(old).created / SECOND + 1.2)
    (new,) = place.put("app.add", 2)
    assert place.facts("jobs", "cancel", "--older", "1s", "--yes") == {"matched": 1, "changed": 1}
    assert states(place) == {old: "cancelled", new: "ready"}


@pytest.mark.parametrize(("answer", "status", "left"), [("y", 0, 0), ("yes", 0, 0), ("n", 1, 2), ("", 1, 2)])
def test_a_person_is_asked(place: Place, answer: str, status: int, left: int) -> None:
    place.put("app.add", 1, times=2)
    ours, theirs = pty.openpty()
    with open(ours, "r+b", buffering=0) as terminal, open(theirs, "rb") as stdin:
        terminal.write(answer.encode() + b"\n")
        ran = subprocess.run(
            [sys.executable, "-m", "tarry", "jobs", "delete", "--queue", "default"],
            cwd=place.directory,
            env=place.environ,
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ran.returncode == status, ran
    assert "2 jobs match; delete them? [y/N] " in ran.stdout
    assert len(place.jobs()) == left


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("list", "--older", "soon"), "'soon' is no duration"),
        (("list", "--limit", "0"), "--limit 0: 1 or more"),
        (("delete", "--state", "ready", "--limit", "1"), "--limit is for `tarry jobs list`"),
        (("list", NOBODY), "`tarry jobs show ID` shows one job"),
    ],
)
def test_a_filter_that_cannot_be(place: Place, words: tuple[str, ...], told: str) -> None:
    assert told in place.misused("jobs", *words)


def test_since_narrows_to_what_came_to_its_state_after_it(place: Place) -> None:
    (old,) = place.put("app.fail", "no")
    finish(place, Raised(note("ValueError", "no"), ("ValueError",)), ago=1800)
    middle = datetime.fromtimestamp(time.time() - 600, UTC).isoformat()
    (new,) = place.put("app.fail", "no")
    finish(place, Raised(note("ValueError", "no"), ("ValueError",)))
    dead = ("--state", "dead", "--task", "app.fail")
    assert [job["id"] for job in place.facts("jobs", "list", *dead, "--since", middle)] == [new]
    assert [job["id"] for job in place.facts("jobs", "list", *dead, "--since", "1h", "--limit", "1")] == [old]
    assert place.said("jobs", "retry", *dead, "--since", middle, "--yes") == "1 of 1 job made ready"
    assert states(place) == {old: "dead", new: "ready"}
    assert place.said("jobs", "retry", *dead, "--since", "1h", "--yes") == "1 of 1 job made ready"
    assert place.misused("jobs", "retry", "--since", "soon").startswith(
        "--since 'soon' is no time: write it as in 2030"
    )


def test_cancel_by_key(place: Place) -> None:
    id = place.said("enqueue", "app.add", "1", "--key", "k", "--delay", "1h")
    assert place.said("jobs", "cancel", "--task", "app.add", "--key", "k") == f"{id} cancelled"
    assert place.refused("jobs", "cancel", "--task", "app.add", "--key", "k") == (
        "no unfinished job of app.add has the key k"
    )
    assert place.misused("jobs", "cancel", "--key", "k") == "--key of which task? Keys are each task's own: add --task"
    assert [job["id"] for job in place.facts("jobs", "list", "--task", "app.add", "--key", "k")] == [id]
