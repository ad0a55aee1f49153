"""A master whose jobs are sealed: its start, its keys one after the other, and what commands say without a key."""

import base64
import re

from tests.cli.project import SMALL_APP, Project, until

MARKER = "pelican"
WHY = re.compile(r"sealed with key [0-9a-f]{8}, which this process does not have")
APP = SMALL_APP + "\n@app.task\ndef echo(text: str) -> str:\n    return text\n"


def key_file(project: Project, name: str) -> str:
    """The place of a new key."""
    key = base64.b64encode(name.encode() * 4).decode()
    return f"file:{project.write(name, key)}"


def use(project: Project, *places: str) -> None:
    project.settings(f"[encryption]\nkeys = {[*places]}\n")


def test_a_master_does_not_start_without_its_key(project: Project) -> None:
    use(project, "env:KEY_OF_NOBODY")
    why = "[encryption] keys: env:KEY_OF_NOBODY: the variable KEY_OF_NOBODY is not set here"
    told = project.tarry("start")
    assert told.status == 1
    assert why in told.err + project.log()
    assert "openssl rand -base64 32" in told.err + project.log()
    assert why in project.tarry("check").out
    assert not project.processes()


def test_keys_are_replaced_while_a_master_runs(project: Project) -> None:
    project.write("app.py", APP)
    old, new = key_file(project, "old_key_"), key_file(project, "new_key_")
    use(project, old)
    project.serve()
    first = project.enqueue("app.echo", f'"{MARKER}"')
    until(lambda: project.job(first).state == "done")
    use(project, new, old)
    assert project.tarry("reload").status == 0
    second = project.enqueue("app.echo", f'"{MARKER}"')
    until(lambda: project.job(second).state == "done")
    for job in (first, second):
        assert project.facts("jobs", "show", job)[0]["note"] == MARKER
    kept = [project.job(job) for job in (first, second)]
    assert len({job.note[18:26] for job in kept}) == 2
    assert MARKER not in repr(kept)
    assert MARKER not in project.log()
    seals = next(fact for fact in project.facts("check")["facts"] if fact["name"] == "encryption")
    assert re.fullmatch(r"key [0-9a-f]{8} seals, [0-9a-f]{8} opens", seals["value"])


def test_commands_without_the_key_say_so(project: Project) -> None:
    project.write("app.py", APP)
    use(project, key_file(project, "old_key_"))
    job = project.enqueue("app.echo", f'"{MARKER}"')

    project.settings("")
    (facts,) = project.facts("jobs", "show", job)
    assert WHY.fullmatch(facts["args"])
    assert WHY.search(project.said("jobs", "show", job))
    assert MARKER not in project.said("jobs", "list")
    project.serve()
    until(lambda: project.job(job).epoch > 0 and project.job(job).state == "scheduled")
    assert "does not have the key" in project.said("jobs", "why", job)
    until(lambda: f"are sealed with key {facts['args'].split()[3].rstrip(',')} and wait" in project.log())


WAITS = """
import pathlib, time
from tarry import App, current_job

app = App()

@app.task
def wait(gate: str) -> None:
    current_job().progress(0.5, "half")
    while not pathlib.Path(gate).exists():
        time.sleep(0.05)
"""


def test_top_has_the_keys_also_where_the_app_is_broken(project: Project) -> None:
    project.write("app.py", WAITS)
    use(project, key_file(project, "old_key_"))
    project.serve()
    job = project.enqueue("app.wait", '"gate"')
    until(lambda: project.job(job).progress)
    project.write("app.py", "raise RuntimeError('broken')\n")
    facts = project.facts("top", "--once")
    assert [(found["id"], found["progress"]) for found in facts["jobs"]] == [(job, 0.5)]
    project.settings("")
    (found,) = project.facts("top", "--once")["jobs"]
    assert (found["id"], found["progress"]) == (job, None), "without the key"
    project.write("gate", "")
