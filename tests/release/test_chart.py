"""The Helm chart, as Helm rendered it last, against the settings, the server and the other files of deploy/."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tarry.config.config import load
from tests.deployed import documents
from tests.release.chart import CHART, RENDERED, digest

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


def rendered(kind: str, name: str = "tarry") -> Any:
    found = yaml.safe_load_all(RENDERED.read_text(encoding="utf-8"))
    (one,) = [one for one in found if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return one["spec"]


def test_what_is_kept_is_of_the_chart_as_it_is() -> None:
    """Else render it anew: `python -m tests.release chart`."""
    assert digest() in RENDERED.read_text(encoding="utf-8").splitlines()[0]


def test_the_defaults_are_values_and_wrong_ones_are_refused() -> None:
    valid = jsonschema_rs.validator_for(SCHEMA)
    assert list(valid.iter_errors(DEFAULTS)) == []
    for wrong in (
        {"replica": 2},
        {"replicas": 0},
        {"env": {"TARRY_X": 4}},
        {"keda": {"minReplicas": 0}},
        {"image": ""},
    ):
        assert not valid.is_valid(DEFAULTS | wrong), wrong


def test_every_value_is_in_the_schema_and_in_a_template() -> None:
    templates = "".join(file.read_text(encoding="utf-8") for file in (CHART / "templates").iterdir())
    names = {f"{name}.{inner}" for name in ("server", "keda", "store") for inner in DEFAULTS[name]}
    names |= DEFAULTS.keys() - {"server", "keda", "store"}
    assert [name for name in sorted(names) if f".Values.{name}" not in templates] == []
    used = set(re.findall(r"\.Values\.([\w.]+)", templates))
    assert used - names == set()


@pytest.mark.parametrize("name", ["tarry", "tarry-server"])
def test_its_variables_are_settings(name: str, tmp_path: Path) -> None:
    pod = rendered("Deployment", name)["template"]["spec"]
    (container,) = pod["containers"]
    variables = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    tokens = tmp_path / "tokens.toml"
    tokens.touch()
    if name == "tarry-server":
        assert variables["TARRY_SERVER__TOKENS"].startswith("/etc/tarry/")
        variables["TARRY_SERVER__TOKENS"] = str(tokens)
    config = load(None, variables, tmp_path)
    assert config.master.term_grace + 10 <= pod["terminationGracePeriodSeconds"]
    assert config.pools["default"].threads == 4
    assert bool(config.server.http) is (name == "tarry-server")


def test_who_asks_the_server_finds_it() -> None:
    service = rendered("Service", "tarry-server")
    pods = rendered("Deployment", "tarry-server")["template"]
    assert service["selector"] == pods["metadata"]["labels"]
    (port,) = pods["spec"]["containers"][0]["ports"]
    assert service["ports"][0]["targetPort"] == port["name"]
    assert rendered("Deployment")["selector"]["matchLabels"] != service["selector"]


def test_keda_is_as_in_the_file_without_a_chart() -> None:
    (asked,) = rendered("ScaledObject")["triggers"]
    (plain,) = documents("kubernetes/keda.yaml")[1]["spec"]["triggers"]
    assert asked == plain
    assert "replicas" not in rendered("Deployment"), "KEDA says how many there are"
