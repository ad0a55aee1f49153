"""What the files in deploy/ say, for the tests that hold them against the real thing."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"


def unit(name: str) -> dict[str, list[str]]:
    """The settings of a systemd unit or drop-in: all values of each, in their order."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / name).read_text(encoding="utf-8").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def image() -> dict[str, list[str]]:
    """The instructions of the Dockerfile, continued lines joined: all arguments of each, in their order."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    found: dict[str, list[str]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            found.setdefault(word, []).append(rest.strip())
    return found


def words(form: str) -> list[str]:
    """An instruction in exec form, as the words of the command."""
    found = json.loads(form)
    assert isinstance(found, list)
    return [str(word) for word in found]


def documents(name: str) -> list[Any]:
    """What is in a YAML file."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def pod() -> Any:
    """The spec of the pods of the Deployment."""
    (deployment,) = [one for one in documents("kubernetes/deployment.yaml") if one["kind"] == "Deployment"]
    return deployment["spec"]["template"]["spec"]


def container() -> Any:
    """The container of those pods."""
    (one,) = pod()["containers"]
    return one


def signal_number(name: str) -> int:
    """`SIGTERM` -> 15."""
    return signal.Signals[name].value
