"""What `tarry jobs show` and `tarry jobs why` print of a job."""

from msgspec.structs import asdict

from tarry.cli.operate.attempts import Attempts, print_acts, print_attempts
from tarry.cli.shared.printing import format_ago, format_clock, print_json
from tarry.client.job_records import job_detail, job_record
from tarry.model.duration import SECOND
from tarry.model.flow.node_ids import flow_of, is_node
from tarry.model.job import RELATIVE, Job, State
from tarry.model.quantity import quantity
from tarry.process.loading import CommandContext
from tarry.push.endpoint_reasons import why_waiting
from tarry.store.rules import ids
from tarry.tasks import progress
from tarry.tasks.output import Output
from tarry.terminal import harmless, say

HOLDERS = 50
"""Jobs that hold a place, of each reason."""


def show(setup: CommandContext, jobs: list[Job], as_json: bool) -> int:
    """All that is known of them; status 0."""
    attempts = Attempts(setup, jobs)
    if as_json:
        print_json([job_detail(job, attempts.maximum(job)) for job in jobs])
        return 0
    for job in jobs:
        facts = asdict(job_record(job)) | {"attempt": attempts.text(job)}
        del facts["max_attempts"]
        if is_node(job.id):
            flow = ids.text(flow_of(job.id))
            facts["flow"] = f"{flow}: tarry flows show {flow}"
        due = job.due if job.due >= RELATIVE else 0
        times = {"created": job.created, "due": due, "since": job.state_since, "expires": job.expires}
        facts |= {name: format_clock(moment) for name, moment in times.items()}
        note = facts.pop("note")
        if reported := facts["progress"]:
            facts["progress"] = f"{reported.fraction:.0%} {reported.message}".rstrip()
        # Printed apart, since it has many lines.
        traceback = note.pop("traceback", "") if isinstance(note, dict) else ""
        facts["result" if job.state is State.DONE else "last"] = note
        for name, value in facts.items():
            say(f"{name:9} {'-' if value is None else harmless(str(value))}")
        print_attempts(job)
        print_acts(job)
        say(traceback, end="")
        if output := progress.decode_output(job.progress):
            _print_output(output)
    return 0


def explain(setup: CommandContext, jobs: list[Job], as_json: bool) -> int:
    """Why they do not run; status 0."""
    client, tasks = setup.client, setup.known_tasks()
    now = client.clock.now()
    endpoints = setup.home.http.endpoints
    found = {ids.text(job.id): why_waiting(client.store, job, now, tasks, endpoints) for job in jobs}
    if as_json:
        print_json(found)
        return 0
    for job, (name, reasons) in zip(jobs, found.items(), strict=True):
        say(f"{name} is {job.state}.")
        for reason in reasons:
            say(f"- {harmless(reason.text)}")
            for one in reason.holders[:HOLDERS]:
                began = format_ago(round(one.since * SECOND), now)
                say(f"    {one.id} {harmless(one.task)} on {one.worker}, began {began}")
    return 0


def _print_output(output: Output) -> None:
    before = f", {quantity(output.left_out, 'line')} before left out" if output.left_out else ""
    say(f"output    of attempt {output.attempt}{before}:")
    for line in output.text.removesuffix("\n").split("\n"):
        say(f"  {line}")
