"""The task: a conversation of a model with tools. What was answered, and paid for, is recorded step by step."""

from collections.abc import Callable, Mapping

from examples.assistant.model import Reply, ask
from tarry import App, Retry, approve, astep, current_job

app = App()

MOST_TURNS = 6
NEEDS_A_PERSON = {"refund"}


def look_up(order: str) -> str:
    """A tool that only reads."""
    return f"order {order}: paid 42 euro, delivered broken"


def refund(order: str) -> str:
    """A tool with an effect. The job's id lets the bank recognise a second call."""
    return f"order {order}: 42 euro go back, reference {current_job().id[-6:]}"


TOOLS: Mapping[str, Callable[[str], str]] = {"look_up": look_up, "refund": refund}


# Tokens a minute for each customer, by an estimate; two conversations of a customer at once.
@app.task(
    limit_by=lambda customer: customer,
    limit=2,
    rate="20000/m",
    cost=lambda question: 500 + len(question),
    retry=Retry(5, base=2),
    timeout="5m",
)
async def answer(customer: str, question: str) -> str:
    """What the model says at last. An attempt that comes after a crash, or after a wait, gets recorded answers."""
    messages = [question]
    for turn in range(MOST_TURNS):
        reply = await astep(ask, messages)
        current_job().progress(turn / MOST_TURNS, reply.text or f"{reply.tool} {reply.argument}")
        if not reply.tool:
            return reply.text
        messages = [*messages, await _use(reply)]
    return "I could not find out."


async def _use(reply: Reply) -> str:
    if reply.tool in NEEDS_A_PERSON:
        # Holds no slot while it waits, and survives every restart.
        said = await approve(reply.tool, key=current_job().id, timeout="1d")
        if said is None or not said.ok:
            return f"refused: {reply.tool}"
    return await astep(TOOLS[reply.tool], reply.argument)
