"""What a scrape says, as a test reads it."""

import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

Samples = Mapping[str, Mapping[tuple[str, ...], float]]
"""Values by the name of the sample, and the values of its labels in the order of the labels' names, `le` last."""

ACCEPT = "application/openmetrics-text; version=1.0.0"


def samples_of(text: str) -> Samples:
    """As OpenMetrics, whose parser refuses what does not follow its rules."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            names = sorted(sample.labels, key=lambda name: (name == "le", name))
            found.setdefault(sample.name, {})[tuple(sample.labels[name] for name in names)] = sample.value
    return found


def fetch(port: int, accept: str = "", path: str = "/metrics") -> str:
    """The answer of a listener on this host."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=20) as answer:
        text: str = answer.read().decode()
    return text


def scrape(port: int) -> Samples:
    """What a listener on this host says."""
    return samples_of(fetch(port, ACCEPT))


def written(path: Path, until: Callable[[str], bool]) -> str:
    """What a file has, once it is as wanted; the caller's limit ends the wait."""
    while True:
        text = path.read_text() if path.exists() else ""
        if until(text):
            return text
