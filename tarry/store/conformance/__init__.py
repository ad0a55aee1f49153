"""What every store promises, as tests: run them on a store of your own.

    from tarry.store.conformance import Conformance

    class TestMyStore(Conformance):
        @pytest.fixture
        def store(self) -> Iterator[Store]:
            store = MyStore("my://server/empty-database")
            yield store
            store.close()

        def reopen(self, store: Store) -> Store:      # if it outlives its closing
            store.close()
            return MyStore(store.url)

Needs pytest; `pytest.register_assert_rewrite("tarry.store.conformance")` in a conftest.py makes failures clearer. The
store must be empty at the start of each test and safe to use from 8 threads. A store of several shards overrides
`together` (which ids meet on one shard) and `shards` (how many there are): order is promised within one shard. A store
behind a network overrides `line` (how replies get lost) and `own_clock` (whether its clock is the server's). Each
docstring below is a promise.
"""

from tarry.store.conformance.attempting import Attempting
from tarry.store.conformance.bounding import Bounding, KeyBounding
from tarry.store.conformance.bulk import Bulk
from tarry.store.conformance.changing import Changing
from tarry.store.conformance.claiming import Claiming
from tarry.store.conformance.counting import Counting
from tarry.store.conformance.error_grouping import ErrorGrouping, ErrorGroupingOfFlows
from tarry.store.conformance.flows.ending import FlowEnding
from tarry.store.conformance.flows.growing import FlowGrowing
from tarry.store.conformance.flows.keeping import FlowKeeping
from tarry.store.conformance.flows.progress import StepKeeping
from tarry.store.conformance.flows.releasing import FlowReleasing
from tarry.store.conformance.flows.returning import FlowReturning
from tarry.store.conformance.flows.signalling import Signalling
from tarry.store.conformance.flows.storing import FlowStoring
from tarry.store.conformance.foreseeing import Foreseeing
from tarry.store.conformance.keeping import Keeping
from tarry.store.conformance.labelling import Labelling
from tarry.store.conformance.lateness import Lateness
from tarry.store.conformance.limits.bulk_limiting import BulkLimiting
from tarry.store.conformance.limits.costing import Costing
from tarry.store.conformance.limits.key_limiting import KeyLimiting
from tarry.store.conformance.limits.limiting import Limiting
from tarry.store.conformance.limits.place_keeping import PlaceKeeping
from tarry.store.conformance.limits.place_taking import PlaceTaking
from tarry.store.conformance.limits.relimiting import LaneAssignment, Relimiting
from tarry.store.conformance.limits.share_changing import ShareChanging
from tarry.store.conformance.limits.spending import Spending
from tarry.store.conformance.limits.weighing import Weighing
from tarry.store.conformance.losing import Losing
from tarry.store.conformance.owning import Owning
from tarry.store.conformance.racing import Racing, Superseding
from tarry.store.conformance.timing import Timing
from tarry.store.conformance.valuing import Valuing
from tarry.store.conformance.waking import Waking


class Conformance(
    Attempting,
    Keeping,
    Valuing,
    Claiming,
    Lateness,
    Changing,
    Racing,
    Superseding,
    Owning,
    Limiting,
    Relimiting,
    KeyLimiting,
    Weighing,
    PlaceKeeping,
    PlaceTaking,
    ShareChanging,
    Spending,
    Costing,
    LaneAssignment,
    Labelling,
    Waking,
    Losing,
    Timing,
    Bulk,
    BulkLimiting,
    Bounding,
    KeyBounding,
    Counting,
    ErrorGrouping,
    ErrorGroupingOfFlows,
    Foreseeing,
    FlowStoring,
    FlowReleasing,
    FlowEnding,
    FlowReturning,
    FlowKeeping,
    FlowGrowing,
    Signalling,
    StepKeeping,
):
    """All promises: subclass it with a `store` fixture, as the module's first lines show."""
