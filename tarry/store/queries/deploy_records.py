"""Deploys as people and programs see them."""

from collections.abc import Sequence

from msgspec import Struct

from tarry.model.duration import SECOND
from tarry.store.queries.deploys import Deploy, DeployKind

MOST_VERSIONS = 3
"""Versions that are named where many fall into one moment."""


class DeployRecord(Struct, frozen=True):
    """A generation of workers that began together, with the same code."""

    host: str
    kind: DeployKind
    """`start` of a master, `reload`, or `upgrade`: a new master in place of another."""
    generation: int
    """How often this master has loaded the code."""
    at: float
    """When it began, in seconds since the epoch."""
    version: str
    """Of the app: `[master] app_version`, or the commit of its git repository; empty: not known."""
    tarry: str
    """The version of tarry."""
    by: str = ""
    """Who asked for it: what somebody said of itself, and no identity; empty: not known."""
    is_rollback: bool = False
    """Whether this host ran the same version before, and another one since."""


def deploy_record(deploy: Deploy) -> DeployRecord:
    """A deploy as people and programs see it."""
    at = deploy.at / SECOND
    return DeployRecord(
        deploy.host,
        deploy.kind,
        deploy.generation,
        at,
        deploy.version,
        deploy.tarry,
        deploy.by,
        deploy.is_rollback,
    )


def deploys_within(deploys: Sequence[Deploy], start: int, end: int) -> list[DeployRecord]:
    """Those that began then, the oldest first. deploys: the newest first. start, end: seconds since the epoch."""
    return [deploy_record(one) for one in reversed(deploys) if start * SECOND <= one.at < end * SECOND]


def distinct_versions(deploys: Sequence[DeployRecord]) -> list[DeployRecord]:
    """The first of each version; where none is known, of each generation."""
    found: dict[str | int, DeployRecord] = {}
    for one in deploys:
        found.setdefault(one.version or one.generation, one)
    return list(found.values())


def version_text(deploys: Sequence[DeployRecord]) -> str:
    """The versions of these, each once, in a few words: `1.0, 1.1`."""
    found = distinct_versions(deploys)
    more = f" and {len(found) - MOST_VERSIONS} more" if len(found) > MOST_VERSIONS else ""
    return ", ".join(one.version or f"generation {one.generation}" for one in found[:MOST_VERSIONS]) + more
