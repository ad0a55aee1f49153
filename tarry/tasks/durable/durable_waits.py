"""`sleep`, `wait_for` and `approve`: a task that waits, however long, and holds no slot meanwhile."""

from collections.abc import Awaitable, Generator
from typing import Any, NoReturn
from uuid import UUID

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.flow.signal import MOST_ADDRESS, Awaited, Signal
from tarry.model.moving import NEVER
from tarry.tasks.arguments import json_values
from tarry.tasks.arguments.codec import refuse_sealed
from tarry.tasks.arguments.options import refuse_unfit
from tarry.tasks.durable.attempt_steps import AttemptSteps, begin_step, run_step
from tarry.tasks.durable.modes import BLOCKING

IN_PLACE = 1 * SECOND
"""Microseconds: a shorter sleep holds its slot, since a call of the store costs more than that slot."""
APPROVE = "approve:"
"""What the names of signals begin with that are decisions; the question follows."""
_NOTHING = Raw(b"null")


class Wait(Struct, frozen=True, array_like=True):
    """A `wait_for` as the log keeps it. until: when its time is over (microseconds since the epoch). n: the number of
    the signal that came; 0: none did."""

    key: str
    until: int
    n: int = 0
    value: Raw = _NOTHING


class Approval(Struct, frozen=True):
    """What a person decided. by: who; note: what they said."""

    ok: bool
    by: str = ""
    note: str = ""


class Decision(Approval, frozen=True):
    """An approval as it is sent. jobs: the ids of those that it is for; empty: all that wait for it."""

    jobs: list[str] = []


class _Over:
    """What `sleep` returns in a `def` task, where it has waited already. May be awaited."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


def sleep(duration: Duration) -> Awaitable[None]:
    """Waits so long, without a slot. Awaited in an `async def` task; in a `def` task it blocks.

    The attempt ends here. When the time has come, any worker calls the task anew, which skips the steps that are
    done. `finally` and `with` blocks run at each such end. Less than a second is waited in place.

    ValueError, StepsChanged, StepLimit; RuntimeError if no worker runs this code.
    """
    long = microseconds(duration, "sleep")
    steps = begin_step("sleep()", "sleep")
    waited = run_step(steps, lambda steps: _sleep(steps, long))
    return _Over() if steps.mode is BLOCKING else waited


def wait_for(name: str, *, key: str, timeout: Duration | None = None, type: Any = Any) -> Any:
    """Waits for a signal; returns the value that `app.signal(name, key=..., value=...)` gave, or None when the time is
    over.

        said = await wait_for("review", key=str(id), timeout="14d")

    Without `await` in a `def` task. A signal that came before is found, if it is kept still. Each wait of a job for the
    same name and key gets the next one. As with `sleep`, the attempt ends and holds no slot. type: what the value is
    read as.

    ValueError if a value does not fit the type, or for a name or key of more than 500 bytes; StepsChanged, StepLimit;
    RuntimeError if no worker runs this code.
    """
    check_address(name, key)
    long = None if timeout is None else microseconds(timeout, "timeout")
    steps = begin_step(f"wait_for({name!r})", f"wait_for {name}")
    return run_step(steps, lambda steps: _wait_for(steps, name, key, long, type))


def approve(question: str, *, key: str, timeout: Duration | None = None) -> Any:
    """Waits until a person has decided; returns an Approval, or None when the time is over.

        said = await approve("refund of 70", key=str(id), timeout="2d")

    Without `await` in a `def` task. It is `wait_for` a signal `approve:` + question, with the errors of `wait_for`.
    """
    return wait_for(APPROVE + question, key=key, timeout=timeout, type=Approval)


def check_address(name: str, key: str) -> None:
    """ValueError if this cannot be the name and key of a signal."""
    for what, text in (("name", name), ("key", key)):
        if not isinstance(text, str) or not text:
            raise ValueError(f"{what}={text!r}: a signal needs a text here")
        refuse_unfit(what, text)
        if len(text.encode()) > MOST_ADDRESS:
            raise ValueError(f"the {what} of a signal has {len(text.encode()):,} bytes; {MOST_ADDRESS} are possible")


async def _sleep(steps: AttemptSteps, long: int) -> None:
    kept, now = steps.kept, steps.port.now()
    due = now + long if kept is None else decode_json(kept.value, int)
    if due - now < IN_PLACE:
        if due > now:
            await steps.mode.pause((due - now) / SECOND)
        return
    # Also if it is kept: when this sleep began is stored with it.
    steps.log.begin_sleep(now, due)
    await steps.keep(b"%d" % due)
    await _suspend(steps, due)


async def _wait_for(steps: AttemptSteps, name: str, key: str, long: int | None, kind: Any) -> Any:
    kept = steps.kept
    if kept is not None and not kept.waits:
        return _value(decode_json(kept.value, Wait), name, kind)
    now = steps.port.now()
    waited = Wait(key, NEVER if long is None else now + long)
    if kept is not None:
        waited = replace(decode_json(kept.value, Wait), key=key)
    after = _last_taken(steps, key)
    there = await steps.mode.signals(steps.port, steps.running.job.id, name, key, after)
    found = [one for one in there if _is_for(one, steps.running.job.id)]
    if found:
        refuse_sealed(found[0].value, f"the signal {name!r} {key!r}")
        waited = replace(waited, n=found[0].n, value=Raw(found[0].value))
    elif waited.until > now:
        steps.log.begin_sleep(now, waited.until)
        await steps.keep(msgspec.json.encode(waited), waits=True)
        # Signals for others do not wake it again.
        await _suspend(steps, waited.until, Awaited(name, key, there[-1].n if there else after))
    # First read, then kept: of a value that does not fit, the error should come again at each attempt.
    value = _value(waited, name, kind)
    await steps.keep(msgspec.json.encode(waited))
    return value


def _is_for(signal: Signal, job: bytes) -> bool:
    """False for a decision about other jobs: whoever may decide for one queue does not for all."""
    if not signal.name.startswith(APPROVE):
        return True
    try:
        jobs = decode_json(signal.value, Decision).jobs
    except UNREADABLE:
        # One that a program sent, whose value may be anything.
        return True
    return not jobs or str(UUID(bytes=job)) in jobs


async def _suspend(steps: AttemptSteps, until: int, awaits: Awaited | None = None) -> NoReturn:
    """Ends the attempt."""
    # A step that is on beside this one would be done, and not be kept.
    await steps.mode.wait_for_others(steps.log)
    raise steps.log.suspend(until, awaits)


def _last_taken(steps: AttemptSteps, key: str) -> int:
    """The number of the last signal of the address that the job took; 0: none."""
    waits = (decode_json(value, Wait) for value in steps.log.done(steps.name))
    return max((wait.n for wait in waits if wait.key == key), default=0)


def _value(waited: Wait, name: str, kind: Any) -> Any:
    if not waited.n:
        return None
    try:
        return json_values.decoder(json_values.to_msgspec_type(kind)).decode(waited.value)
    except msgspec.ValidationError as error:
        raise ValueError(f"the signal {name!r} {waited.key!r} has a value that does not fit: {error}") from None
