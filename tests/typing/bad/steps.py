"""What a type checker must refuse of durable steps: each marked line, and no other."""

from tarry import astep, step
from tests.typing.shop import fetch, send


async def steps() -> None:
    await step(fetch, 7)  # error
    await astep(send, 7)  # error
    step(send)  # error
    step.named(7)  # error
