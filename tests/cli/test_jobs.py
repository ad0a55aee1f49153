import pty
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.attempts import with_attempt
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import Job, State
from tarry.model.limit import Limit
from tarry.model.outcome import Raised, Returned, outcome_note
from tarry.model.overrides import as_headers
from tarry.model.retry import Retry
from tarry.store.rules import ids
from tarry.store.rules.base import BANDS, Want
from tarry.store.sqlite.store import SqliteStore
from tests.cli.project import Project

NOBODY = "01a1fdd3-717b-7374-861e-7ba6a7da9033"


def states(project: Project) -> dict[str, str]:
    return {ids.text(job.id): job.state for job in project.jobs()}


def finish(project: Project, outcome: Any, ago: int = 0) -> None:
    """A worker came by, so many seconds ago, and ran all that is ready."""
    with project.store() as store:
        now = store.time()
        queues = list(store.queues())
        wants = [Want(queue, band, 1000) for queue in queues for band in BANDS]
        jobs = store.claim(wants, 1000, "somebody", 30 * SECOND, now)
        now -= ago * SECOND
        store.apply([lifecycle.after(job, outcome, lifecycle.DEFAULT, now) for job in jobs], now)


def run_one(project: Project, id: str) -> None:
    """A worker is at this job, which is the only one ready."""
    with project.store() as store:
        (job,) = store.claim([Want("default", 0, 1)], 1, "somebody", 30 * SECOND, store.time())
    assert ids.text(job.id) == id


@pytest.fixture
def mixed(project: Project) -> list[str]:
    """One each of done, dead, ready in mail, scheduled."""
    (done,) = project.put("app.add", 1)
    finish(project, Returned(b"1"))
    (dead,) = project.put("app.fail", "no")
    finish(project, Raised(outcome_note("ValueError", "no", "Traceback: here\n"), ("ValueError",)))
    return [done, dead, *project.put("app.greet", "Ann", queue="mail"), *project.put("app.add", 2, delay="1h")]


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
def test_list_narrows(project: Project, mixed: list[str], words: tuple[str, ...], found: list[int]) -> None:
    assert [job["id"] for job in project.facts("jobs", "list", *words)["jobs"]] == [mixed[n] for n in found]
    shown = project.said("jobs", *words).splitlines()
    assert [line.split()[0] for line in shown if line[:2] == "01"] == [mixed[n] for n in found]
    assert ("--limit shows more" in shown[-1]) == ("--limit" in words)


def test_jobs_of_a_label_are_listed_shown_and_changed(project: Project) -> None:
    (mine,) = project.put("app.add", 1, labels={"customer": "7", "plan": "gold"})
    (other,) = project.put("app.add", 1, labels={"customer": "77", "plan": "gold"})
    listed = project.facts("jobs", "list", "--label", "customer=7", "--label", "plan=gold")["jobs"]
    assert [(job["id"], job["labels"]) for job in listed] == [(mine, {"customer": "7", "plan": "gold"})]
    assert "labels    customer=7 plan=gold\n" in project.said("jobs", "show", mine) + "\n"
    assert "customer=7 plan=gold" in project.said("jobs", "show", "--label", "customer=7")
    assert "write NAME=VALUE, such as customer=7" in project.misused("jobs", "list", "--label", "customer")
    assert "write NAME=VALUE" in project.misused("jobs", "delete", "--label", "", "--yes")
    assert states(project) == {mine: "ready", other: "ready"}
    project.said("jobs", "cancel", "--label", "customer=7", "--yes")
    assert states(project) == {mine: "cancelled", other: "ready"}
    project.said("jobs", "retry", "--label", "plan=gold", "--state", "cancelled", "--yes")
    assert states(project) == {mine: "ready", other: "ready"}
    project.said("jobs", "delete", "--label", "customer=77", "--yes")
    assert states(project) == {mine: "ready"}


def test_show_tells_everything(project: Project, mixed: list[str]) -> None:
    done, dead = project.facts("jobs", "show", *mixed[:2])
    assert (done["state"], done["args"], done["note"], done["attempt"]) == ("done", [1], 1, 1)
    assert (dead["state"], dead["failures"], dead["note"]["message"]) == ("dead", 1, "no")
    said = project.said("jobs", "show", *mixed[:2])
    assert "result    1\n" in said
    assert said.endswith("Traceback: here")
    assert f"id        {dead['id']}" in said


def attempts(project: Project, id: str) -> tuple[str, str, tuple[int, int | None]]:
    """What show, list and --json tell of a job's attempts."""
    (shown,) = [line for line in project.said("jobs", "show", id).splitlines() if line.startswith("attempt ")]
    (listed,) = [line for line in project.said("jobs", "list").splitlines() if line.startswith(id)]
    (facts,) = project.facts("jobs", "show", id)
    assert project.facts("jobs", "list")["jobs"][0]["max_attempts"] == facts["max_attempts"]
    return (
        shown.removeprefix("attempt").strip(),
        " ".join(listed.split()[5:8]),
        (facts["attempt"], facts["max_attempts"]),
    )


@pytest.mark.parametrize(("task", "shown", "most"), [("app.greet", "2 of 4", 4), ("nosuch", "2", None)])
def test_show_and_list_tell_which_attempt_of_how_many(
    project: Project, task: str, shown: str, most: int | None
) -> None:
    with project.store() as store:
        id, now = ids.uuid7(), store.time()
        store.insert([Job(id, task, b"[]", due=now, state_since=now, failures=1)])
    said, listed, facts = attempts(project, ids.text(id))
    assert (said, facts) == (shown, (2, most))
    assert ("of" in listed) == (most is not None)


def test_a_jobs_own_rule_tells_how_many_attempts_it_has(project: Project) -> None:
    headers = msgspec.json.encode(as_headers(None, Retry(4, per={KeyError: Retry(6)})))
    with project.store() as store:
        id, now = ids.uuid7(), store.time()
        store.insert([Job(id, "unknown", b"[]", due=now, state_since=now, failures=1, headers=headers)])
    assert attempts(project, ids.text(id)) == ("2 of 7", "2 of 7", (2, 7))


def test_show_and_list_tell_how_far_a_job_is(project: Project) -> None:
    (id,) = project.put("app.add", 1)
    assert project.facts("jobs", "show", id)[0]["progress"] is None
    run_one(project, id)
    with project.store() as store:
        store.save_progress("somebody", [(ids.parse(id), 1, b'[0.425,"rows"]')])
    assert project.facts("jobs", "list")["jobs"][0]["progress"] == {"fraction": 0.425, "message": "rows"}
    assert "progress  42% rows\n" in project.said("jobs", "show", id) + "\n"


def test_why_tells_what_keeps_a_job_from_running(project: Project, mixed: list[str]) -> None:
    done, _, ready, scheduled = mixed
    project.said("queues", "pause", "mail")
    answer = project.said("jobs", "why", done, ready, scheduled)
    assert f"{done} is done.\n- It is done: it does not start again by itself." in answer
    assert f"{ready} is ready.\n- Queue mail is paused.\n- No master is known to run." in answer
    assert re.search(rf"{scheduled} is scheduled\.\n- It is due in (1h|59m\d+s)\.", answer)
    (found,) = project.facts("jobs", "why", scheduled)
    assert (found["id"], found["state"]) == (scheduled, "scheduled")
    assert [reason["kind"] for reason in found["reasons"]] == ["due", "no_host"]


def test_why_names_the_jobs_that_hold_a_limit(project: Project) -> None:
    with project.store() as store:
        store.limit("queue:default", Limit(1))
    first, second = *project.put("app.add", 1), *project.put("app.add", 2)
    run_one(project, first)
    answer = project.said("jobs", "why", second)
    assert f"- Limit queue:default is reached: 1 of 1 run.\n    {first} app.add on somebody, began " in answer


def test_show_and_why_without_ids_are_for_the_first_that_match(project: Project, mixed: list[str]) -> None:
    done, dead, *_ = mixed
    assert [job["id"] for job in project.facts("jobs", "show", "--state", "dead", "--task", "app.fail")] == [dead]
    assert project.said("jobs", "show", "--state", "dead", "--since", "1h").endswith("Traceback: here")
    assert [job["id"] for job in project.facts("jobs", "show", "--older", "0", "--limit", "1")] == [done]
    assert [job["id"] for job in project.facts("jobs", "why", "--task", "app.fail")] == [dead]
    assert "no job matches" in project.refused("jobs", "show", "--task", "app.nosuch")
    assert "without ids" in project.misused("jobs", "show", done, "--limit", "1")


def test_why_of_which_job_has_to_be_said(project: Project) -> None:
    assert project.misused("jobs", "why").startswith("which job? tarry jobs why ID")


def test_an_id_may_be_written_as_status_and_logs_write_it(project: Project, mixed: list[str]) -> None:
    (job,) = project.facts("jobs", "show", mixed[0].replace("-", ""))
    assert job["id"] == mixed[0]


def test_retry_cancel_and_delete_by_id(project: Project, mixed: list[str]) -> None:
    done, dead, ready, scheduled = mixed
    assert project.job(dead).attempt == 1, "of the one that failed, not one that will never come"
    assert project.said("jobs", "retry", dead, scheduled) == f"{dead} made ready\n{scheduled} made ready"
    assert project.said("jobs", "cancel", ready) == f"{ready} cancelled"
    assert project.facts("jobs", "delete", done) == []
    assert states(project) == {dead: "ready", ready: "cancelled", scheduled: "ready"}
    assert project.job(dead).attempt == 1


def test_what_cannot_be_changed_is_left_and_told(project: Project) -> None:
    running = project.enqueue("app.add", "1")
    run_one(project, running)
    for action in ("retry", "delete"):
        ran = project.tarry("jobs", action, running)
        assert (ran.status, ran.out) == (1, "")
        done = {"retry": "made ready", "delete": "deleted"}[action]
        assert ran.err == f"tarry: {running}: the job is not {done}: it is running\n"
    ran = project.tarry("jobs", "cancel", running, "--json")
    answer = {"id": running, "cancelled": True, "sent": None, "detail": ""}
    assert (ran.status, msgspec.json.decode(ran.out)) == (0, [answer])
    waiting = project.enqueue("app.add", "1")
    ran = project.tarry("jobs", "cancel", running, waiting)
    said = f"{running} left as it is: it is cancelled already\n{waiting} cancelled\n"
    assert (ran.status, ran.out) == (1, said)


@pytest.mark.parametrize("action", ["show", "retry", "cancel", "delete"])
def test_a_job_that_is_not_there(project: Project, mixed: list[str], action: str) -> None:
    assert project.refused("jobs", action, mixed[3], NOBODY).startswith(f"no job {NOBODY}: ")
    assert states(project)[mixed[3]] == "scheduled"
    told = project.tarry("jobs", action, "no-id")
    assert (told.status, "no-id" in told.err) == (2, True)


@pytest.mark.parametrize("action", ["retry", "cancel", "delete"])
def test_changing_all_of_them_has_to_be_said(project: Project, mixed: list[str], action: str) -> None:
    assert project.misused("jobs", action, "--yes") == (
        f"{action} which jobs? Give ids, or narrow with --queue --task --key --label --state --older --since --q"
    )
    assert project.misused("jobs", "show") == (
        "which job? tarry jobs show ID, or those that match: --state dead --since 1h"
    )


def test_ids_and_a_narrowing_together_are_refused(project: Project, mixed: list[str]) -> None:
    assert "not both" in project.misused("jobs", "delete", mixed[0], "--state", "dead")
    assert "not both" in project.misused("jobs", "show", mixed[0], "--queue", "mail")
    assert len(states(project)) == 4


@pytest.mark.parametrize("action", ["retry", "cancel", "delete"])
def test_many_are_not_changed_without_a_yes_where_nobody_can_be_asked(project: Project, action: str) -> None:
    ready = project.enqueue("app.add", "1")
    ran = project.tarry("jobs", action, "--state", "ready")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == f"1 job matches; {action} it? Not asked, since this is no terminal: add --yes.\n"
    assert states(project) == {ready: "ready"}


def test_many_are_changed_page_by_page(project: Project) -> None:
    project.put("app.add", 1, times=2500)
    (kept,) = project.put("app.greet", "Ann")
    record = project.facts("jobs", "cancel", "--task", "app.add", "--yes")
    assert (record["state"], record["matched"], record["changed"]) == ("done", 2500, 2500)
    said = project.said("jobs", "retry", "--task", "app.add", "--state", "cancelled", "--yes")
    assert said == "2,500 of 2,500 jobs made ready"
    assert project.said("jobs", "delete", "--task", "app.add", "--yes") == "2,500 of 2,500 jobs deleted"
    assert states(project) == {kept: "ready"}


def test_no_match_is_told_in_both_ways(project: Project) -> None:
    assert project.said("jobs", "cancel", "--state", "dead") == "No job matches."
    record = project.facts("jobs", "cancel", "--state", "dead")
    assert (record["matched"], record["changed"]) == (0, 0)


def test_only_those_for_long_in_their_state(project: Project) -> None:
    (old,) = project.put("app.add", 1)
    with project.store() as store:
        assert isinstance(store, SqliteStore)
        with store.lend() as db:
            db.execute("UPDATE tarry_job SET state_since = state_since - ?", (HOUR,))
    (new,) = project.put("app.add", 2)
    assert project.said("jobs", "cancel", "--older", "30m", "--yes") == "1 of 1 job cancelled"
    assert states(project) == {old: "cancelled", new: "ready"}


@pytest.mark.parametrize(("answer", "status", "left"), [("y", 0, 0), ("yes", 0, 0), ("n", 1, 2), ("", 1, 2)])
def test_a_person_is_asked(project: Project, answer: str, status: int, left: int) -> None:
    project.put("app.add", 1, times=2)
    ours, theirs = pty.openpty()
    with open(ours, "r+b", buffering=0) as terminal, open(theirs, "rb") as stdin:
        terminal.write(answer.encode() + b"\n")
        ran = subprocess.run(
            [sys.executable, "-m", "tarry", "jobs", "delete", "--queue", "default"],
            cwd=project.directory,
            env=project.environ,
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ran.returncode == status, ran
    assert "2 jobs match; delete them? [y/N] " in ran.stdout
    assert len(project.jobs()) == left


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("list", "--older", "soon"), "soon"),
        (("list", "--limit", "0"), "--limit: expected a whole number >= 1"),
        (("delete", "--text", "Ann"), "delete takes no --text; narrow with --queue"),
        (("delete", "--state", "ready", "--limit", "1"), "--limit is for `tarry jobs list`"),
        (("list", "sate:dead"), "q: sate:dead: no such word; did you mean state?"),
        (("list", "queue:mail", "--queue", "mail"), "the line says queue, which is also given beside it"),
        (("delete", "--q", "id:01a20121"), "id: finds single jobs"),
    ],
)
def test_a_filter_that_cannot_be(project: Project, words: tuple[str, ...], told: str) -> None:
    assert told in project.misused("jobs", *words)


def test_one_line_says_which_jobs(project: Project, mixed: list[str]) -> None:
    _, dead, ready, scheduled = mixed
    for words in (("state:dead task:app.f* error:no since:1h",), ("state:dead", "error:valueerror"), ("--q", "no")):
        assert [job["id"] for job in project.facts("jobs", "list", *words)["jobs"]] == [dead]
    assert [job["id"] for job in project.facts("jobs", "list", ready)["jobs"]] == [ready]
    assert [job["id"] for job in project.facts("jobs", "show", "--q", "state:scheduled")] == [scheduled]
    assert "Looked at 3 jobs." in project.said("jobs", "list", "task:app.* arg:Ann state:done,ready,scheduled")
    assert project.said("jobs", "retry", "--q", "error:no task:*fail", "--yes") == "1 of 1 job made ready"
    assert project.said("jobs", "delete", "--queue", "mail", "--q", "arg:Bob", "--yes") == "No job matches."
    assert len(project.facts("jobs", "list", "--task", "app.a*")["jobs"]) == 2
    assert project.said("jobs", "cancel", "--task", "app.a*", "--state", "scheduled", "--yes") == "1 of 1 job cancelled"
    assert states(project)[dead] == "ready"


def test_since_narrows_to_what_came_to_its_state_after_it(project: Project) -> None:
    (old,) = project.put("app.fail", "no")
    finish(project, Raised(outcome_note("ValueError", "no"), ("ValueError",)), ago=1800)
    middle = datetime.fromtimestamp(time.time() - 600, UTC).isoformat()
    (new,) = project.put("app.fail", "no")
    finish(project, Raised(outcome_note("ValueError", "no"), ("ValueError",)))
    dead = ("--state", "dead", "--task", "app.fail")
    assert [job["id"] for job in project.facts("jobs", "list", *dead, "--since", middle)["jobs"]] == [new]
    assert [job["id"] for job in project.facts("jobs", "list", *dead, "--since", "1h", "--limit", "1")["jobs"]] == [old]
    assert project.said("jobs", "retry", *dead, "--since", middle, "--yes") == "1 of 1 job made ready"
    assert states(project) == {old: "dead", new: "ready"}
    assert project.said("jobs", "retry", *dead, "--since", "1h", "--yes") == "1 of 1 job made ready"
    assert project.misused("jobs", "retry", "--since", "soon").startswith(
        "--since 'soon' is no time: write it as in 2030"
    )


def test_jobs_are_moved_by_id_and_by_filter(project: Project, mixed: list[str]) -> None:
    _, _, ready, scheduled = mixed
    moved = project.facts("jobs", "move", ready, "--to-queue", "slow", "--to-priority", "-3", "--delay", "1h")
    assert [(one["id"], one["queue"], one["priority"], one["state"]) for one in moved] == [
        (ready, "slow", -3, "scheduled")
    ]
    assert project.said("jobs", "move", scheduled, "--delay", "0") == f"{scheduled} moved"
    assert states(project)[scheduled] == "ready"
    assert project.said("jobs", "move", "--queue", "slow", "--to-queue", "bulk", "--yes") == "1 of 1 job moved"
    assert project.job(ready).queue == "bulk"
    assert project.misused("jobs", "move", "--queue", "slow", "--delay", "1h").startswith("--delay and --at are for")


def test_what_was_done_to_a_queues_jobs_is_in_its_part_of_the_log_of_acts(project: Project) -> None:
    (id,) = project.put("app.greet", "Ann", queue="mail")
    project.said("jobs", "cancel", id)
    project.said("jobs", "delete", "--queue", "mail", "--yes")
    project.said("queues", "pause", "mail", "default")
    acts = [(one["act"], one["subject"]) for one in project.facts("audit", "--queue", "mail")["acts"]]
    assert acts == [
        ("pause_queue", "mail"),
        ("start_operation", "delete queue:mail"),
        ("cancel_job", id),
    ]
    assert [one["act"] for one in project.facts("audit", "--job", id.replace("-", ""))["acts"]] == ["cancel_job"]


def test_cancel_by_key(project: Project) -> None:
    id = project.said("enqueue", "app.add", "1", "--key", "k", "--delay", "1h")
    assert project.said("jobs", "cancel", "--task", "app.add", "--key", "k") == f"{id} cancelled"
    assert project.refused("jobs", "cancel", "--task", "app.add", "--key", "k") == (
        "no unfinished job of app.add has the key k"
    )
    assert (
        project.misused("jobs", "cancel", "--key", "k") == "--key of which task? Keys are each task's own: add --task"
    )
    assert [job["id"] for job in project.facts("jobs", "list", "--task", "app.add", "--key", "k")["jobs"]] == [id]


def test_show_tells_of_each_attempt(project: Project) -> None:
    with project.store() as store:
        id, now = ids.uuid7(), store.time()
        job = Job(id, "app.greet", b"[]", state=State.RUNNING, owner="here|1:2:3:1", epoch=1, state_since=now - SECOND)
        job = replace(job, attempts=with_attempt(job, "failed", now, outcome_note("E", "no\nmore\x1b[2J")))
        store.insert([replace(job, state=State.READY, owner="", due=now, failures=1)])
    lines = project.said("jobs", "show", ids.text(id)).splitlines()
    at = lines.index("attempts")
    assert lines[at + 1].startswith("  1: 20")
    assert " for 1s on here|1:2:3:1: failed, E: no more" in lines[at + 1]
    assert "\x1b" not in lines[at + 1]
    (facts,) = project.facts("jobs", "show", ids.text(id))
    assert [one["outcome"] for one in facts["attempts"]] == ["failed"]


def test_commands_are_in_the_log_of_acts(project: Project) -> None:
    (id,) = project.put("app.add", 1)
    assert project.tarry("jobs", "cancel", id).status == 0
    assert project.tarry("jobs", "retry", NOBODY).status == 1
    assert project.tarry("jobs", "list").status == 0
    assert project.tarry("queues", "pause", "default").status == 0
    facts = project.facts("audit")["acts"]
    assert [(one["act"], one["subject"], one["via"]) for one in facts] == [
        ("pause_queue", "default", "command"),
        ("retry_job", NOBODY, "command"),
        ("cancel_job", id, "command"),
    ]
    assert [one["outcome"].partition(":")[0] for one in facts] == ["done", "JobNotFound", "done"]
    assert facts[0]["who"] == facts[2]["who"] != ""
    assert [one["act"] for one in project.facts("audit", "--job", id)["acts"]] == ["cancel_job"]
    assert project.facts("audit", "--queue", "default")["acts"][0]["act"] == "pause_queue"
    assert "cancel_job" in project.said("audit", "--since", "1h")
    assert "No" not in project.said("audit", "--who", "nobody")
    (shown,) = [line for line in project.said("jobs", "show", id).splitlines() if line.startswith("act ")]
    assert "cancelled by " in shown
    assert shown.endswith("(command)")
