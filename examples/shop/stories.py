"""The four stories: how a shop puts, replaces and cancels jobs. Each goes on at the moments that it yields.

`stage.task(name)` is the HTTP task of `tarry.toml`. `stage.expect` notes when its requests are to arrive.
"""

from collections.abc import Iterator

from examples.shop.stage import Stage, Story

Moments = Iterator[float]


def membership(stage: Stage, story: Story) -> Moments:
    """A reminder three days before the end."""
    reminder, at = stage.task("membership.reminder"), story.clock.at
    story.tell(0, "Ann is a member until day 30, Bob until day 20, Cy until day 15")
    ann = reminder.using(at=at(30 - 3), key="ann").enqueue({"member": "ann"})
    bob = reminder.using(at=at(20 - 3), key="bob").enqueue({"member": "bob"})
    cy = reminder.using(at=at(15 - 3), key="cy").enqueue({"member": "cy"})
    story.expect(ann, "Ann is reminded", 27)
    yield 2
    # The job with that key is still waiting, so it is moved: there is one reminder, at the new time.
    renewed = reminder.using(at=at(25 - 3), key="bob", on_duplicate="replace").enqueue({"member": "bob"})
    story.tell(2, "Bob renews until day 25: his reminder is moved", renewed == bob)
    story.expect(bob, "Bob is reminded", 22)
    yield 3
    story.tell(3, "Cy leaves: his reminder is cancelled", cy.cancel("left"))
    story.expect(cy, "Cy is reminded")


def payment(stage: Stage, story: Story) -> Moments:
    """Five minutes after an order: is it paid?"""
    check = stage.task("payment.check")
    gone = check.enqueue({"order": 9})
    story.tell(0, "order 9 comes in: to be looked at, at 12:05")
    story.expect(gone, "order 9 is looked at")
    yield 1
    late = check.enqueue({"order": 8})
    story.tell(1, "order 8 comes in: to be looked at, at 12:06; the money will be late")
    story.expect(late, "order 8 is looked at", 6, 8)
    story.tell(1, "order 9 is cancelled, and so is the look at it", gone.cancel("order cancelled"))
    yield 2
    paid = check.enqueue({"order": 7})
    story.tell(2, "order 7 comes in: to be looked at, at 12:07; a worker will be killed over it")
    story.expect(paid, "order 7 is looked at", 7)


def refund(stage: Stage, story: Story) -> Moments:
    """Every minute: is the money back?"""
    job = stage.task("refund.poll").enqueue({"refund": "r-1"})
    story.tell(0, "a refund is under way: the bank is asked every minute")
    story.expect(job, "the bank is asked", 1, 2, 3, 4, 5)
    yield 6
    story.tell(6, f"what came of it, from the job's result: {job.result(timeout=15)['answer']}")


def partner(stage: Stage, story: Story) -> Moments:
    """Now, and again after 1, 3, 5, 7 minutes."""
    job = stage.task("partner.notify").enqueue({"partner": "acme", "order": 7})
    story.tell(0, "the partner is to know of order 7; its server says success only at the fifth call")
    story.expect(job, "the partner is told", 0, 1, 4, 9, 16)
    yield 16
