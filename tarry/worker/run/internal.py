"""The tasks that every worker has besides those of the app: they are parts of flows."""

from collections.abc import Mapping
from typing import Any

from tarry.client.flows import map_part
from tarry.model.flow.wiring import UNDO_TASK
from tarry.tasks.definition import TaskDefinition
from tarry.worker.run.undo import undo_task


def find_internal(name: str, tasks: Mapping[str, TaskDefinition[Any, Any]]) -> TaskDefinition[Any, Any] | None:
    """The task of this name; None: it is none of these. tasks: those of the app."""
    return undo_task if name == UNDO_TASK else map_part.find(name, tasks)
