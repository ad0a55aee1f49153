"""What became of the jobs of an owner that is gone, and which of them count its end as their doing."""

from collections.abc import Collection, Mapping

from tarry.model.job import Job
from tarry.model.outcome import Lost, Outcome, TimedOut, outcome_note
from tarry.store import owner


def find_blamed(jobs: Collection[Job], batch_tasks: Collection[str]) -> set[str]:
    """Ids of the jobs for which the crash of their owner counts, where nothing shows which were executing.

    A job counts if its owner is known to be dead and held no other. Jobs of a batch task count if the owner held only
    these, since they may have been in one call.
    """
    held: dict[str, list[Job]] = {}
    for job in jobs:
        held.setdefault(job.owner, []).append(job)
    # A server process runs no job: those that it holds for other programs did not kill it.
    held = {name: group for name, group in held.items() if owner.is_dead(name) and not owner.is_door(name)}
    return {job.id.hex() for group in held.values() if _is_one_call(group, batch_tasks) for job in group}


def _is_one_call(jobs: list[Job], batch_tasks: Collection[str]) -> bool:
    task = jobs[0].task
    return len(jobs) == 1 or (task in batch_tasks and all(job.task == task and not job.crashes for job in jobs))


def outcome_of(
    job: Job, on: Collection[str], stuck: Mapping[str, bytes], shared: Collection[str], why: str = ""
) -> Outcome:
    """What became of the attempt at a job whose owner is gone. on: ids of the jobs that count the crash; stuck: the
    notes of those for which the owner was killed; shared: the batch tasks of which it ran several jobs in one call;
    why: how it died."""
    if owner.is_outside(job.owner):
        # Nobody sees such a program die. A lease that ran out must count, or a job that kills it would come for ever.
        # At once: the lease was the time that it had to run, and the rule's delay is for what failed.
        text = "who took it neither finished it nor prolonged its lease in time"
        return TimedOut(outcome_note("LeaseExpired", text), after=0)
    if job.task in shared and not job.crashes:
        return Lost(on=True, why=why)
    note = stuck.get(job.id.hex())
    return Lost(job.id.hex() in on, why) if note is None else TimedOut(note)


def stuck_note(stack: str, is_ended: bool) -> bytes:
    """What is kept with a job that did not end, so that its worker was killed."""
    why = "an operator ended it" if is_ended else "it did not end after its timeout"
    return outcome_note("TimeLimit", f"{why}, so its worker was killed", stack)
