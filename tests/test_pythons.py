"""The Pythons that tarry supports are the same wherever they are named."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT: Any = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CLASSIFIER = "Programming Language :: Python :: 3."
PYTHONS = [one.removeprefix(CLASSIFIER[:-2]) for one in PROJECT["classifiers"] if one.startswith(CLASSIFIER)]


def test_the_oldest_is_required() -> None:
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_the_targets_of_make_have_them() -> None:
    (named,) = re.findall(r"^PYTHONS \?= (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert named.split() == PYTHONS


@pytest.mark.parametrize("job", ["test", "pythons"])
def test_the_workflow_runs_on_them(job: str) -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"][job]["strategy"]["matrix"]["python"] == PYTHONS


def test_the_page_says_until_when() -> None:
    page = (ROOT / "docs/versions.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (3\.\d+) \| October \d{4} \|", page, re.M) == PYTHONS


def test_this_is_one_of_them() -> None:
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in PYTHONS
