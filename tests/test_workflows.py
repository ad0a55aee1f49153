"""The workflows of .github: what they run is what was looked at, with no more rights than it needs."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

WORKFLOWS = sorted((Path(__file__).resolve().parents[1] / ".github/workflows").glob("*.yml"))
every_workflow = pytest.mark.parametrize("workflow", WORKFLOWS, ids=[file.stem for file in WORKFLOWS])
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def jobs_of(workflow: Path) -> dict[str, Any]:
    found = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    assert isinstance(found, dict)
    return found


@every_workflow
def test_each_action_is_pinned_by_hash_and_names_its_version(workflow: Path) -> None:
    used = re.findall(r"uses: (.*)", workflow.read_text(encoding="utf-8"))
    assert used
    assert [action for action in used if not PINNED.fullmatch(action)] == []


def test_an_action_has_one_hash() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in WORKFLOWS)
    hashes = dict[str, set[str]]()
    for action, pin in re.findall(r"uses: ([\w./-]+)@(.*)", text):
        hashes.setdefault(action, set()).add(pin)
    assert {action: pins for action, pins in hashes.items() if len(pins) > 1} == {}


@every_workflow
def test_it_may_only_read_unless_a_job_says_more(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}
    assert [name for name, job in jobs_of(workflow).items() if "timeout-minutes" not in job] == []


@every_workflow
def test_no_credential_is_left_where_code_runs(workflow: Path) -> None:
    steps = [step for job in jobs_of(workflow).values() for step in job["steps"]]
    checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
    assert [step for step in checkouts if step["with"]["persist-credentials"] is not False] == []
    # An expression within a command is put into it as it stands, whatever it holds.
    assert [step["run"] for step in steps if re.search(r"\$\{\{ *(github|inputs)", step.get("run", ""))] == []


def test_the_image_is_made_of_what_the_index_has() -> None:
    jobs = jobs_of(next(file for file in WORKFLOWS if file.stem == "release"))
    assert (jobs["publish"]["needs"], jobs["image"]["needs"]) == ("build", "publish")
    (build,) = [step for step in jobs["image"]["steps"] if step.get("id") == "build"]
    assert (build["with"]["file"], build["with"]["sbom"]) == ("deploy/Dockerfile", True)
