"""`tarry flows`."""

import subprocess
import sys

import pytest

from tests.cli.project import Project

APP = """
from pathlib import Path

from tarry import App, approve, wait_for

app = App(retry=None)

@app.task
def charge(order: int) -> str:
    if Path("no-card").exists():
        raise LookupError("no card")
    return f"receipt {order}"

@app.task
def send(receipt: str) -> str:
    return f"sent {receipt}"

@app.task
def ask(order: str) -> list[object]:
    said = approve(f"refund of {order}", key=order, timeout="2d")
    return [said.ok, said.note]

@app.task
def wait(order: str) -> object:
    return wait_for("paid", key=order)

def order(key: str) -> str:
    with app.flow("order", key=key) as f:
        f.add(send.call(f.add(charge.call(7)).result))
    return f.handle.id
"""
LOST = "01a20fed-b334-8235-84d7-463000000000"


@pytest.fixture(autouse=True)
def _app(project: Project) -> None:
    project.write("app.py", APP)


def do(project: Project, *lines: str) -> list[str]:
    """What a program prints."""
    program = "\n".join(("from app import *", *lines))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=project.directory, env=project.environ, check=True, stdout=subprocess.PIPE
    )
    return done.stdout.decode().split()


def test_nothing_is_there(project: Project) -> None:
    assert project.said("flows") == "No flow matches."
    assert project.said("flows", "--state", "dead") == "No flow matches."
    assert project.said("flows", "approvals") == "Nothing waits for an approval."
    assert (project.facts("flows")["flows"], project.facts("flows", "approvals")["approvals"]) == ([], [])
    assert project.said("flows", "retry", "--state", "dead") == "No flow matches."


def test_list_and_show(project: Project) -> None:
    first, second = do(project, "print(order('1'))", "app.drain()", "print(order('2'))")
    lines = project.said("flows").splitlines()
    assert lines[0].split() == ["id", "name", "key", "state", "ended", "made"]
    assert lines[1].split()[:5] == [second, "order", "2", "running", "0/2"]
    assert lines[2].split()[:5] == [first, "order", "1", "done", "2/2"]
    assert [one["id"] for one in project.facts("flows", "--state", "done", "--name", "order")["flows"]] == [first]
    assert project.said("flows", "--limit", "1").splitlines()[-1] == "The newest 1; --limit shows more."
    shown = project.said("flows", "show", first).splitlines()
    assert shown[0].startswith(f"order {first}, key 1: done ")
    assert shown[1].startswith("└─ 1 app.charge: done in ")
    assert shown[-1] == 'result: "sent receipt 7"'
    assert [one["id"] for one in project.facts("flows", "show", "--name", "order")] == [second]
    assert [one["id"] for one in project.facts("flows", "show", "--key", "1")] == [first]
    assert "no flow matches" in project.refused("flows", "show", "--name", "nosuch")
    (fact,) = project.facts("flows", "show", first)
    assert ([box["after"] for box in fact["boxes"]], fact["result"]) == ([[], [1]], "sent receipt 7")


def test_retry_and_cancel(project: Project) -> None:
    project.write("no-card", "")
    one, two = do(project, "print(order('1'))", "print(order('2'))", "app.drain()")
    ended = project.tarry("flows", "cancel", one)
    assert (ended.status, ended.out.strip(), ended.err) == (1, f"{one} left as it is: it has ended", "")
    assert project.said("flows", "retry", one) == f"{one} goes on: 1 job runs again"
    assert [made["cancelled"] for made in project.facts("flows", "cancel", one, "--reason", "closed")] == [True]
    assert project.said("flows", "show", one).splitlines()[-1] == "cancelled: FlowCancelled: closed"
    asked = project.tarry("flows", "retry", "--name", "order")
    assert (asked.status, asked.err.strip()) == (
        1, "1 flow matches; retry it? Not asked, since this is no terminal: add --yes.",
    )  # fmt: skip
    assert project.said("flows", "retry", "--name", "order", "--yes") == "1 of 1 flow retried"
    assert project.facts("flows", "cancel", "--name", "order", "--yes") == {"matched": 1, "changed": 1}
    acts = [(act["act"], act["outcome"].partition(" (")[0]) for act in project.facts("audit", "--job", one)["acts"]]
    assert acts == [("cancel_flow", "done"), ("retry_flow", "done"), ("cancel_flow", "done")]
    assert two in project.said("flows", "--state", "cancelled")


def test_a_job_of_a_flow_says_so(project: Project) -> None:
    (flow,) = do(project, "print(order('1'))")
    (waiting,) = project.facts("jobs", "--state", "blocked", "--task", "app.send")["jobs"]
    assert waiting["args"] == [None]
    shown = project.said("jobs", "show", waiting["id"]).splitlines()
    assert f"flow      {flow}: tarry flows show {flow}" in shown
    assert "due       -" in shown
    listed = project.said("jobs", "--state", "blocked", "--task", "app.send").splitlines()
    assert listed[1].split()[-1] == "-"
    for action in ("retry", "cancel", "delete"):
        for job, what in ((waiting["id"], "it waits in a flow"), (flow, "it is a flow")):
            done = project.tarry("jobs", action, job)
            not_done = {"retry": "made ready", "cancel": "cancelled", "delete": "deleted"}[action]
            assert (done.status, done.err.strip()) == (
                1, f"tarry: {job}: the job is not {not_done}: {what}: see `tarry flows show {flow}`",
            )  # fmt: skip
    assert project.refused("flows", "show", waiting["id"]) == (f"{waiting['id']} is a job of the flow {flow}")


def test_approvals(project: Project) -> None:
    (id,) = do(project, "print(ask.enqueue('7').id)", "app.drain()")
    (fact,) = project.facts("flows", "approvals")["approvals"]
    assert (fact["key"], fact["question"], fact["id"], fact["flow"]) == ("7", "refund of 7", id, None)
    assert project.said("flows", "approvals").splitlines()[1].split()[:5] == ["7", "refund", "of", "7", "app.ask"]
    assert project.said("flows", "approve", "7", "--no", "--note", "never") == "'refund of 7' refused: 1 job goes on"
    do(project, "app.drain()")
    (shown,) = project.facts("jobs", "show", id)
    assert shown["note"] == [False, "never"]
    told = "no job waits for an approval with the key '7': it is decided, or not asked yet"
    assert project.refused("flows", "approve", "7") == told
    outcomes = [act["outcome"] for act in project.facts("audit", "--act", "decide_approval")["acts"]]
    assert outcomes == [f"JobNotFound: {told}", "done"]


def test_signals(project: Project) -> None:
    (id,) = do(project, "print(wait.enqueue('7').id)", "app.drain()")
    assert project.said("flows", "signal", "paid", "8") == ("Nothing waits for it now; it is kept for jobs that will.")
    assert project.said("flows", "signal", "paid", "7", "--value", '{"cents": 70}', "--id", "x") == "1 job goes on"
    assert project.facts("flows", "signal", "paid", "7", "--value", '{"cents": 70}', "--id", "x") == {"woken": 0}
    do(project, "app.drain()")
    (shown,) = project.facts("jobs", "show", id)
    assert shown["note"] == {"cents": 70}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show",), "show which flows? Give ids, or narrow with --name --key --state"),
        (("list", LOST), "list takes no names; `tarry flows` shows them all"),
        (("retry",), "retry which flows? Give ids, or narrow with --name --key --state"),
        (("cancel", LOST, "--name", "order"), "cancel takes no --name"),
        (("show", LOST, "--yes"), "show takes no --yes"),
        (("--limit", "0"), "--limit: expected a whole number >= 1"),
        (("approve",), "approve which? tarry flows approve KEY"),
        (("signal", "paid"), "signal what to whom? tarry flows signal NAME KEY"),
        (("signal", "approve:it", "7"), "name: approve: is for decisions: tarry flows approve keeps who made them"),
        (("signal", "paid", "7", "--value", "{"), "--value {: no JSON ("),
    ],
)
def test_what_is_wrong_is_told(project: Project, words: tuple[str, ...], said: str) -> None:
    assert project.misused("flows", *words).startswith(said)


def test_a_flow_that_is_not_there(project: Project) -> None:
    said = f"no flow {LOST}: it never existed, or its time of keeping is over"
    for action in ("show", "retry", "cancel"):
        assert project.refused("flows", action, LOST) == said
