"""Each model as deep as there is time for here, and each seeded mistake."""

import pytest

from tests.exhaustive.flow_mistakes import FLOW_MISTAKES
from tests.exhaustive.mistakes import JOB_MISTAKES, Mistake
from tests.exhaustive.models import MODELS


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_violated(name: str) -> None:
    explored = MODELS[name].run(MODELS[name].quick)
    assert explored.violation is None, str(explored.violation)
    assert explored.is_whole or explored.depth == MODELS[name].quick


@pytest.mark.parametrize("mistake", [*JOB_MISTAKES, *FLOW_MISTAKES], ids=lambda mistake: mistake.name)
def test_a_mistake_is_seen(mistake: Mistake) -> None:
    violation = mistake.explore().violation
    assert violation is not None
    assert mistake.told in violation.what
    assert len(violation.way) <= 15
