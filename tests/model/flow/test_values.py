"""The ids of nodes, and the envelope of their bodies."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.model.flow import node_ids, wiring
from tarry.model.flow.node_ids import MAX_NODES
from tarry.model.flow.wiring import COMPENSATE, Gate, NodeLinks, Ref, Take
from tarry.store.rules.flows import NoFlows
from tarry.store.rules.ids import uuid7

indices = st.integers(0, 2**32 - 1)


@given(index=indices, ms=st.integers(0, 2**48 - 1), draw=st.integers(0, 2**42 - 1))
def test_an_id_says_of_which_flow_it_is(index: int, ms: int, draw: int) -> None:
    flow = node_ids.flow_id(ms, draw)
    node = node_ids.node_id(flow, index)
    assert len(node) == 16
    assert node_ids.is_node(node)
    assert node_ids.is_root(node) == (index == 0)
    assert (node_ids.flow_of(node), node_ids.index_of(node)) == (flow, index)
    # RFC 9562: version 8, variant 10; and the time first, as in all other ids.
    assert (node[6] >> 4, node[8] >> 6, int.from_bytes(node[:6], "big")) == (8, 0b10, ms)


def test_ids_of_flows_differ_and_those_of_other_jobs_are_none() -> None:
    assert len({NoFlows().new_id("order") for _ in range(1000)}) == 1000
    assert not any(node_ids.is_node(uuid7()) or node_ids.is_root(uuid7()) for _ in range(1000))


given_out = st.integers(0, MAX_NODES)
gates = st.builds(Gate, given_out, given_out, given_out)
takes = st.builds(Take, st.integers(0, 99) | st.text(), st.builds(Ref, given_out, given_out))
wirings = st.builds(
    NodeLinks,
    st.lists(gates).map(tuple),
    st.lists(takes).map(tuple),
    st.integers(0, 2),
    st.text(),
    st.none() | st.tuples(st.text(), st.text(), st.binary()),
    st.booleans(),
)


@given(wired=wirings, arguments=st.binary())
def test_an_envelope_gives_back_what_was_put_in(wired: NodeLinks, arguments: bytes) -> None:
    body = wiring.wrap(wired, arguments)
    assert wiring.unwrap(body) == (wired, arguments)
    assert wiring.arguments(body) == arguments


@given(value=st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_no_json_is_an_envelope(value: object) -> None:
    body = msgspec.json.encode(value)
    assert wiring.unwrap(body) == (None, body)
    assert wiring.arguments(body) == body


@pytest.mark.parametrize(
    "body", [b"\x01", b"\x01\x09", b"\x01\xff\xff\xff\xff\xff\xff", b"\x01\x02\xff\xff", b"\x01\x01x"]
)
def test_a_broken_envelope_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"broken|\w"):
        wiring.unwrap(body)


@pytest.mark.parametrize(
    ("wired", "size"),
    [(NodeLinks(), 3), (NodeLinks((Gate(2, 1, 1),)), 8), (NodeLinks((Gate(1, 99_999, 1),), on_failure=COMPENSATE), 14)],
)
def test_an_envelope_is_small(wired: NodeLinks, size: int) -> None:
    """Each job of a flow has one, in memory too."""
    assert len(wiring.wrap(wired, b"")) == size
