"""What `tarry jobs show` and `tarry jobs why` print of a job."""

from collections.abc import Sequence

import msgspec

from tarry.cli.operate.method_command import CommandCall
from tarry.cli.shared.printing import format_ago, format_clock
from tarry.client.job_records import JobActRecord, JobAttempt, JobRecord
from tarry.model.duration import SECOND, format_duration
from tarry.model.job import RELATIVE, State
from tarry.model.quantity import quantity
from tarry.operate.jobs import JobAnswer, WhyAnswer
from tarry.tasks.output import Output
from tarry.terminal import escape_control, print_line

HOLDERS = 50
"""Jobs that hold a place, of each reason."""


def attempt_text(job: JobRecord) -> str:
    """`2 of 13`; `2` if the maximum is not known, or is exceeded."""
    most = job.max_attempts
    # `3 of 2` would only puzzle: the rule has changed since.
    return str(job.attempt) if most is None or job.attempt > most else f"{job.attempt} of {most}"


def print_details(_: CommandCall, names: Sequence[str], found: Sequence[JobAnswer]) -> None:
    """All that is known of them."""
    for job in found:
        facts = {name: getattr(job, name) for name in JobRecord.__struct_fields__} | {"attempt": attempt_text(job)}
        del facts["max_attempts"]
        if job.flow:
            facts["flow"] = f"{job.flow}: tarry flows show {job.flow}"
        due = job.due if job.due >= RELATIVE / SECOND else 0
        times = {"created": job.created, "due": due, "since": job.since, "expires": job.expires or 0}
        facts |= {name: format_clock(round(moment * SECOND)) for name, moment in times.items()}
        facts["labels"] = " ".join(f"{name}={value}" for name, value in job.labels.items()) or None
        note = facts.pop("note")
        if job.progress:
            facts["progress"] = f"{job.progress.fraction:.0%} {job.progress.message}".rstrip()
        # Printed apart, since it has many lines.
        traceback = note.pop("traceback", "") if isinstance(note, dict) else ""
        facts["result" if job.state is State.DONE else "last"] = note
        for name, value in facts.items():
            print_line(f"{name:9} {'-' if value is None else escape_control(str(value))}")
        _print_attempts(job)
        _print_acts(job.acts)
        print_line(traceback, end="")
        if job.output:
            _print_output(job.output)


def print_reasons(call: CommandCall, names: Sequence[str], found: Sequence[WhyAnswer]) -> None:
    """Why they do not run."""
    now = call.client.clock.now()
    for job in found:
        print_line(f"{job.id} is {job.state}.")
        for reason in job.reasons:
            print_line(f"- {escape_control(reason.text)}")
            for one in reason.holders[:HOLDERS]:
                began = format_ago(round(one.since * SECOND), now)
                print_line(f"    {one.id} {escape_control(one.task)} on {one.worker}, began {began}")


def _print_attempts(job: JobAnswer) -> None:
    """A line for each known attempt of the job, the oldest first; nothing if there is none."""
    if job.attempts_left_out:
        print_line(f"attempts  {job.attempts_left_out} before left out:")
    elif job.attempts:
        print_line("attempts")
    for one in job.attempts:
        print_line(f"  {escape_control(_line(one))}")


def _print_acts(acts: Sequence[JobActRecord]) -> None:
    """A line for each thing that was done to the job by hand, the oldest first."""
    for one in acts:
        origin = " ".join(part for part in (one.address, f"({one.via})" if one.via else "") if part)
        print_line(
            escape_control(
                f"act       {format_clock(round(one.at * SECOND))}: {one.act} by {one.who or '-'} from {origin}"
                f"{_detail(one)}"
            )
        )


def _detail(one: JobActRecord) -> str:
    if one.of is not None:
        return f", of {one.of}"
    return "" if one.before is None else f", before: {msgspec.json.encode(one.before).decode()}"


def _line(one: JobAttempt) -> str:
    started, ended = round((one.started or 0) * SECOND), round((one.ended or 0) * SECOND)
    # Of an attempt that was done at once only its end is kept.
    began = format_clock(started) if started else f"ended {format_clock(ended)}"
    took = f" for {format_duration(ended - started)}" if started and ended else ""
    where = f" on {one.worker}" if one.worker else ""
    error = " ".join(one.error.split())
    return f"{one.attempt}: {began}{took}{where}: {one.outcome.replace('_', ' ')}{error and f', {error}'}"


def _print_output(output: Output) -> None:
    before = f", {quantity(output.left_out, 'line')} before left out" if output.left_out else ""
    print_line(f"output    of attempt {output.attempt}{before}:")
    for line in output.text.removesuffix("\n").split("\n"):
        print_line(f"  {line}")
