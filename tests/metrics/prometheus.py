"""Debian's Prometheus, which scrapes a tarry of a test."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.servers.server import Server, program

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES, BOARD = DEPLOY / "prometheus" / "rules.yml", DEPLOY / "grafana" / "tarry.json"


class Prometheus(Server):
    """Scrapes these addresses every second, as the job `tarry`, with the rules of deploy/."""

    def __init__(self, directory: Path, targets: Sequence[str]) -> None:
        super().__init__(directory)
        scrape = {"job_name": "tarry", "static_configs": [{"targets": list(targets)}]}
        every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        settings = {"global": every, "rule_files": [str(RULES)], "scrape_configs": [scrape]}
        (directory / "prometheus.yml").write_text(yaml.safe_dump(settings), encoding="utf-8")

    def command(self) -> Sequence[str]:
        return [
            program("prometheus"),
            f"--config.file={self.directory}/prometheus.yml",
            f"--storage.tsdb.path={self.directory}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    def query(self, expression: str) -> list[Any]:
        """What an instant query finds; an AssertionError says what is wrong with it."""
        return self._ask("query", {"query": expression})["result"]  # type: ignore[no-any-return]

    def values(self, expression: str, label: str) -> dict[str, float]:
        """What it finds, by a label."""
        return {one["metric"].get(label, ""): float(one["value"][1]) for one in self.query(expression)}

    def rules(self) -> list[Any]:
        """All rules, as Prometheus has them."""
        return [rule for group in self._ask("rules", {})["groups"] for rule in group["rules"]]

    def _ask(self, what: str, values: Mapping[str, str]) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(values)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{values}: {error.read().decode()}") from None
        assert found["status"] == "success", found
        return found["data"]


def board() -> Any:
    """The board for Grafana."""
    return json.loads(BOARD.read_text(encoding="utf-8"))


def board_expressions() -> dict[str, str]:
    """What the board asks, by panel, with Grafana's variables filled in."""
    filled = {}
    for panel in board()["panels"]:
        for target in panel.get("targets", ()):
            expression = (
                target["expr"].replace("$__rate_interval", "1m").replace("$job", "tarry").replace("$queue", ".*")
            )
            filled[f"{panel['title']} {target['refId']}"] = expression
    return filled


def rule_expressions() -> dict[str, str]:
    """What the rules ask, by their names."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule.get("alert") or rule["record"]: rule["expr"] for group in groups for rule in group["rules"]}
