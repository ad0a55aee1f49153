"""Deploys in charts: a line where each fell."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from tarry.operate.history import seen_deploys
from tarry.server.http.method import ApiCall
from tarry.store.queries.deploy_records import MOST_VERSIONS, DeployRecord, deploys_within, distinct_versions
from tarry.store.queries.deploys import Deploy

MOST_MARKS = 20
"""Points of one chart that have a mark, the latest ones: more lines are no help."""


class DeployLine(Struct, frozen=True):
    """The deploys that fell into one point of a chart."""

    at: float
    """Where the first stands: in points, from the left."""
    first: DeployRecord
    versions: Sequence[DeployRecord]
    """The first of each version; of many, some."""
    more: int
    """How many versions are not named."""


def shown_deploys(call: ApiCall) -> Sequence[Deploy]:
    """The deploys that the caller may see, the newest first; StoreError."""
    return seen_deploys(call, call.service.history.deploys())


def deploy_marks(deploys: Sequence[Deploy], starts: range) -> Mapping[int, DeployLine]:
    """Marks by the place of their point. deploys: the newest first. starts: of the points."""
    points: dict[int, list[DeployRecord]] = {}
    for one in deploys_within(deploys, starts.start, starts.stop):
        points.setdefault(int(one.at - starts.start) // starts.step, []).append(one)
    return {place: _mark(points[place], starts) for place in list(points)[-MOST_MARKS:]}


def _mark(deploys: list[DeployRecord], starts: range) -> DeployLine:
    found = distinct_versions(deploys)
    at = (deploys[0].at - starts.start) / starts.step
    return DeployLine(round(at, 2), deploys[0], found[:MOST_VERSIONS], max(0, len(found) - MOST_VERSIONS))
