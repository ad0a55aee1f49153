"""The Helm chart, rendered by Helm itself, which the index has as a library for Python."""

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

from tests.deployed import DEPLOY, documents
from tests.release.check import BUILD, CheckFailed, run, tool

CHART = DEPLOY / "helm/tarry"
RENDERED = Path(__file__).with_name("rendered.yaml")
HELM = "helm-python-sdk==0.2.2"
ALL = {
    "server": {"enabled": True},
    "keda": {"enabled": True, "queue": "mail"},
    "env": {"TARRY_POOLS__DEFAULT__THREADS": "4"},
}
"""Values by which each template gives something."""

_RENDER = """
import json, sys
from helm_python.chart import Chart, lint
path, values = sys.argv[1], json.loads(sys.argv[2])
print(json.dumps([lint(path, values, strict=True), Chart.load(path).render(values, name="tarry")]))
"""


def digest() -> str:
    """Of all files of the chart."""
    found = hashlib.sha256()
    for file in sorted(file for file in CHART.rglob("*") if file.is_file()):
        found.update(f"{file.relative_to(CHART)}\0".encode() + file.read_bytes() + b"\0")
    return found.hexdigest()


def render(values: dict[str, Any]) -> list[Any]:
    """The documents, by kind and name. CheckFailed if Helm's lint has a warning."""
    report, manifests = json.loads(run(str(tool(HELM) / "python"), "-c", _RENDER, str(CHART), json.dumps(values)))
    if wrong := [one for one in report["messages"] if one["severity"] > 1]:
        raise CheckFailed(f"helm lint: {wrong}")
    found = [one for text in manifests.values() for one in yaml.safe_load_all(text) if one]
    return sorted(found, key=lambda one: (one["kind"], one["metadata"]["name"]))


def check() -> str:
    """The chart is linted and rendered by Helm: with its defaults it is deploy/kubernetes/deployment.yaml."""
    plain = sorted(documents("kubernetes/deployment.yaml"), key=lambda one: str(one["kind"]))
    if render({}) != plain:
        raise CheckFailed("with its defaults it is not deploy/kubernetes/deployment.yaml")
    _write(rendered := render(ALL))
    return f"{len(rendered)} objects with all values, in {RENDERED.relative_to(DEPLOY.parent)}"


def _write(objects: list[Any]) -> None:
    """Keeps what Helm made, for the tests that have no Helm."""
    BUILD.mkdir(parents=True, exist_ok=True)
    head = f"# The chart with all values, by Helm: `python -m tests.release chart`. Of the chart {digest()}\n"
    RENDERED.write_text(head + yaml.safe_dump_all(objects, sort_keys=True), encoding="utf-8")
