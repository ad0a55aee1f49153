"""The index of labels that a store keeps: a row for each label of a job, as long as the job is kept."""

from collections.abc import Iterable, Sequence

from tarry.model.checks.labels import LABEL_MARK
from tarry.model.job import Job

LabelRow = tuple[str, str, bytes]
"""A name, a value, and the id of the job that has them."""


def label_rows(jobs: Iterable[Job]) -> Sequence[LabelRow]:
    """The rows of these jobs."""
    # Most jobs have no headers, and then this is all that labels cost them.
    labelled = [job for job in jobs if job.headers and LABEL_MARK in job.headers]
    return [(name, value, job.id) for job in labelled for name, value in job.labels.items()]
