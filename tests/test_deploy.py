"""The files in deploy/ against the command line, the settings and the docs; that they work is in tests/system."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tarry.cli.main import parser
from tarry.client.queue_records import QueueDetail
from tarry.config.config import Config, load
from tarry.metrics.names import METRICS
from tarry.server.serving.api import METHODS
from tests.deployed import DEPLOY, container, documents, image, pod, unit, words

ROOT = DEPLOY.parent
NOTIFY_RELOAD, JUDGES_FILES = 253, 250
"""The first systemd that knows `Type=notify-reload`, and the first that judges a unit's file."""


def command(line: list[str]) -> str:
    """The command of a line that `tarry` understands; a wrong one exits."""
    parser().parse_args(line)
    return line[0]


def what_docs_say(name: str) -> str:
    """Of that signal to the master, in docs/operations.md."""
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8").partition("## Signals")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([A-Z0-9, ]+) \| (.*) \|$", page, re.MULTILINE)
    (said,) = [text for names, text in rows if name.removeprefix("SIG") in names.split(", ")]
    return str(said)


def settings(environ: dict[str, str], tmp_path: Path) -> Config:
    """With these variables and no file; ConfigError if one is wrong."""
    return load(None, environ, tmp_path)


# The unit


def systemd() -> int:
    """Its version; skips where there is none."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("there is no systemd here to ask")
    return int(subprocess.check_output(["systemd-analyze", "--version"], text=True).split()[1])


def verified(directory: Path, name: str) -> tuple[int, str]:
    """What systemd says of the unit there."""
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(directory / name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def installed(tmp_path: Path) -> Path:
    """The units with a tarry that is there, and with a type that this systemd knows."""
    version, units = systemd(), tmp_path / "units"
    shutil.copytree(DEPLOY, units)
    for file in (units / "tarry.service", units / "tarry.service.d/before-253.conf"):
        text = file.read_text().replace("/srv/app/.venv/bin/tarry", str(Path(sys.executable).with_name("tarry")))
        file.write_text(text if version >= NOTIFY_RELOAD else text.replace("=notify-reload", "=notify"))
    if version >= NOTIFY_RELOAD:
        shutil.rmtree(units / "tarry.service.d")
    return units


@pytest.mark.parametrize("name", ["tarry.service", "tarry.socket"])
def test_systemd_has_nothing_to_say_of_the_units(tmp_path: Path, name: str) -> None:
    assert verified(installed(tmp_path), name) == (0, "")


def test_systemd_would_say_so(tmp_path: Path) -> None:
    units = installed(tmp_path)
    (units / "tarry.service").write_text((units / "tarry.service").read_text().replace("KillMode=", "KilMode="))
    assert "KilMode" in verified(units, "tarry.service")[1]


def test_the_unit_keeps_what_is_around_it_small() -> None:
    if systemd() < JUDGES_FILES:
        pytest.skip("this systemd cannot judge a unit that is not loaded")
    ran = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(DEPLOY / "tarry.service")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (exposure,) = re.findall(r"exposure level for tarry.service: ([\d.]+)", ran.stdout)
    assert float(exposure) <= 2.0


def test_the_unit_starts_the_master_in_the_foreground_and_stops_it_by_its_signals() -> None:
    service = unit("tarry.service")
    program, *rest = shlex.split(service["ExecStart"][0])
    assert Path(program).is_absolute()
    assert command(rest) == "start"
    assert not parser().parse_args(rest).daemon
    assert service["Type"] == ["notify-reload"]  # of which the signal is HUP
    assert service["KillMode"] == ["mixed"]
    assert what_docs_say(service["KillSignal"][0]).startswith("stop")


def test_what_the_unit_waits_for_the_master_bounds() -> None:
    service = unit("tarry.service")
    assert float(service["TimeoutStartSec"][0]) > 60  # the master's own limit for the first start
    assert float(service["TimeoutStopSec"][0]) >= 30  # what it asks for at a time
    assert service["OOMPolicy"] == ["continue"]


def test_the_unit_for_an_older_systemd_reloads_by_a_command() -> None:
    older = unit("tarry.service.d/before-253.conf")
    assert older["Type"] == ["notify"]
    program, *rest = shlex.split(older["ExecReload"][0])
    assert program == shlex.split(unit("tarry.service")["ExecStart"][0])[0]
    assert command(rest) == "reload"


def test_the_socket_is_where_the_http_door_will_be() -> None:
    assert unit("tarry.socket")["ListenStream"] == ["127.0.0.1:7800"]
    assert unit("tarry.socket")["FileDescriptorName"] == ["http"]


# The image


def test_the_image_runs_the_master_as_process_1_and_as_nobody_special() -> None:
    assert words(image()["ENTRYPOINT"][0]) == ["tarry"]
    assert command(words(image()["CMD"][0])) == "start"
    assert image()["FROM"] == ["python:3.11-slim AS build", "python:3.11-slim"]
    assert image()["USER"] == ["10001:10001"]


def test_the_image_has_the_environment_and_not_what_made_it() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    made, _, last = text.partition("\nFROM python:3.11-slim\n")
    assert "pip " in made
    assert "pip " not in last
    assert image()["COPY"] == ["requirements.txt .", "--from=build /venv /venv", ". ."]
    (variables,) = image()["ENV"]
    assert variables.startswith("PATH=/venv/bin:$PATH ")


def test_the_image_is_asked_for_its_health_by_status() -> None:
    program, *rest = words(image()["HEALTHCHECK"][0].partition("CMD ")[2])
    assert program == "tarry"
    assert command(rest) == "status"


def test_the_images_stop_signal_ends_it_within_what_docker_waits(tmp_path: Path) -> None:
    (name,) = image()["STOPSIGNAL"]
    said = what_docs_say(name)
    assert said.startswith("stop")
    assert "term_grace" in said
    assert settings({}, tmp_path).master.term_grace < 10


def test_the_images_variables_are_settings(tmp_path: Path) -> None:
    variables = dict(word.split("=", 1) for line in image()["ENV"] for word in line.split())
    assert settings(variables, tmp_path).master.pid_file == Path("/run/tarry/tarry.pid")


# Compose and Kubernetes


def test_compose_leaves_time_to_give_back(tmp_path: Path) -> None:
    (compose,) = documents("compose.yaml")
    service = compose["services"]["tarry"]
    config = settings(service["environment"], tmp_path)
    assert config.stores == [service["environment"]["TARRY_STORE"]]
    assert config.master.term_grace + 10 <= float(service["stop_grace_period"].removesuffix("s"))
    assert "init" not in service
    assert "stop_signal" not in service
    assert set(service["depends_on"]) <= set(compose["services"])


def test_compose_keeps_the_jobs_of_redis() -> None:
    (compose,) = documents("compose.yaml")
    told = compose["services"]["redis"]["command"]
    assert told[told.index("--appendonly") + 1] == "yes"
    assert told[told.index("--maxmemory-policy") + 1] == "noeviction"


def test_kubernetes_leaves_time_to_give_back(tmp_path: Path) -> None:
    variables = {one["name"]: one["value"] for one in container()["env"] if "value" in one}
    config = settings(variables, tmp_path)
    assert config.master.term_grace + 10 <= pod()["terminationGracePeriodSeconds"]
    assert config.master.log_format == "json"
    assert "lifecycle" not in container()


def test_kubernetes_gives_the_store_as_a_secret(tmp_path: Path) -> None:
    (store,) = [one for one in container()["env"] if one["name"] == "TARRY_STORE"]
    reference = store["valueFrom"]["secretKeyRef"]
    (secret,) = documents("kubernetes/secret.yaml")
    assert secret["metadata"]["name"] == reference["name"]
    assert settings({"TARRY_STORE": secret["stringData"][reference["key"]]}, tmp_path).stores


def test_kubernetes_asks_by_commands_and_gives_them_time() -> None:
    probes = {name: container()[name] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    program, *rest = probes["livenessProbe"]["exec"]["command"]
    assert program == "tarry"
    assert command(rest) == "status"
    assert all(probe["timeoutSeconds"] >= 5 for probe in probes.values())
    assert probes["startupProbe"]["periodSeconds"] * probes["startupProbe"]["failureThreshold"] > 60


def test_kubernetes_has_a_place_for_all_that_is_written() -> None:
    places = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    assert set(places.values()) == {"/run/tarry", "/tmp"}
    assert {volume["name"] for volume in pod()["volumes"]} == set(places)
    assert pod()["securityContext"]["runAsUser"] == int(image()["USER"][0].partition(":")[0])


def test_keda_asks_for_what_the_server_answers() -> None:
    authentication, scaled = documents("kubernetes/keda.yaml")
    (trigger,) = scaled["spec"]["triggers"]
    path = urlsplit(trigger["metadata"]["url"]).path
    (asked,) = [method for method in METHODS if method.name == "get_queue"]
    assert path == asked.route.replace("{queue}", "mail")
    assert trigger["metadata"]["valueLocation"] in QueueDetail.__struct_fields__
    assert trigger["authenticationRef"]["name"] == authentication["metadata"]["name"]
    assert scaled["spec"]["scaleTargetRef"]["name"] == documents("kubernetes/deployment.yaml")[0]["metadata"]["name"]
    assert scaled["spec"]["minReplicaCount"] >= 1, "a keeper has to be there"


def test_kedas_other_trigger_asks_for_a_figure_that_is_there() -> None:
    text = (DEPLOY / "kubernetes/keda.yaml").read_text(encoding="utf-8")
    (other,) = yaml.safe_load(re.sub(r"^    # (?=[- ])", "", text[text.index("    # - type") :], flags=re.MULTILINE))
    name, label = re.fullmatch(r"max\((\w+)\{(\w+)=.*", other["metadata"]["query"]).groups()  # type: ignore[union-attr]
    assert label in METRICS[name].labels


def test_the_conda_recipe_needs_what_the_wheel_needs() -> None:
    (recipe,) = documents("conda/recipe.yaml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = [one.partition(";")[0] for one in project["project"]["dependencies"]]
    needed = {one.replace(" ", "") for one in recipe["requirements"]["run"]}
    assert needed == {
        f"python{project['project']['requires-python']}",
        *({"tzdata": "python-tzdata"}.get(one, one) for one in wheel),
    }
    host = {one.replace(" ", "") for one in recipe["requirements"]["host"]}
    assert host >= set(project["build-system"]["requires"])
    (name, target), *_ = project["project"]["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {target}"]


def test_every_file_is_spoken_of_in_the_readme() -> None:
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    files = [file.relative_to(DEPLOY) for file in sorted(DEPLOY.rglob("*")) if file.is_file()]
    # A chart is one thing, whose files have comments of their own.
    assert "`helm/tarry`" in readme
    rest = [str(file) for file in files if str(file) != "README.md" and file.parts[0] != "helm"]
    assert [file for file in rest if f"`{file}`" not in readme] == []
