"""The promises about flows, steps and signals (`tarry.store.flows`), for `tarry.store.conformance`."""

from tarry.store.conformance.flows.ending import FlowEnding
from tarry.store.conformance.flows.growing import FlowGrowing
from tarry.store.conformance.flows.keeping import FlowKeeping
from tarry.store.conformance.flows.progress import StepKeeping
from tarry.store.conformance.flows.releasing import FlowReleasing
from tarry.store.conformance.flows.returning import FlowReturning
from tarry.store.conformance.flows.signalling import Signalling
from tarry.store.conformance.flows.storing import FlowStoring


class FlowPromises(
    FlowStoring,
    FlowReleasing,
    FlowEnding,
    FlowReturning,
    FlowKeeping,
    FlowGrowing,
    Signalling,
    StepKeeping,
):
    """All promises about flows."""
