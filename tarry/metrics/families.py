"""Families of samples, as Prometheus' library has them, by the names of `names`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from tarry.metrics.names import METRICS

# Any: a mapping of pairs is none of tuples of any length to a type checker.
FamilyValues = Mapping[Any, float]
"""A figure by the values of its labels, as a tuple."""


def gauges(values: Mapping[str, FamilyValues]) -> Iterator[Metric]:
    """Families of gauges and counters. values: by the name of the figure."""
    for name, by_labels in values.items():
        known = METRICS[name]
        kind = CounterMetricFamily if known.kind == "counter" else GaugeMetricFamily
        found = kind(name, known.about, labels=known.labels)
        for labels, value in by_labels.items():
            found.add_metric(labels, value)
        yield found


def histogram(name: str, values: Mapping[Any, tuple[Sequence[tuple[str, float]], float]]) -> HistogramMetricFamily:
    """values: the counts up to each limit, and the sum, by the values of the labels."""
    known = METRICS[name]
    found = HistogramMetricFamily(name, known.about, labels=known.labels)
    for labels, (buckets, total) in values.items():
        found.add_metric(labels, buckets, total)
    return found


def info(name: str, value: Mapping[str, str]) -> InfoMetricFamily:
    """A constant with facts in its labels."""
    found = InfoMetricFamily(name.removesuffix("_info"), METRICS[name].about)
    found.add_metric((), dict(value))
    return found
