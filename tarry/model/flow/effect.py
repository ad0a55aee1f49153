"""What a change of a node does to its flow, as a value: `model/flow/rules.py` computes it, a store only adds it up."""

from msgspec import Struct

from tarry.model.flow.wiring import Gate


class NodeEffect(Struct, frozen=True, gc=False):
    """Made with its change, and only if that is made. The numbers are what to add to those of the flow."""

    active: int = 0
    failed: int = 0
    armed: int = 0
    """Failures that ask for compensation."""
    blocked: int = 0
    tells: tuple[Gate, ...] = ()
    """Gates that wait for one end less."""
    raises: tuple[tuple[Gate, int], ...] = ()
    """Gates that wait for so many ends more, before any is told."""
    opens: tuple[Gate, ...] = ()
    """Gates of new nodes, which wait for nothing else."""
    revives: bool = False
    """Of the root of a flow that has ended: it goes on."""
    note: bytes = b""
    """How the node failed; the flow keeps that of the first failure."""
