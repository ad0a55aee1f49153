"""The task, with what each customer may have."""

from collections import Counter

from tarry import App, TenantFull

app = App()
PLANS = {"free": 1, "business": 4}
"""Weights: of every 5 starts a business customer has 4 while both wait."""

started: list[str] = []


@app.task(limit_by=lambda customer: customer, limit=2, max_waiting=500, timeout="5m")
def render(customer: str, page: int) -> int:
    """Two pages of a customer at once, over all hosts; at most 500 wait."""
    started.append(customer)
    return page


def subscribe(customer: str, plan: str) -> None:
    """The customer has another plan from now on, on all hosts, without a deployment."""
    render.tenant(customer).set(limit=2 * PLANS[plan], weight=PLANS[plan])


def order(customer: str, pages: int) -> str:
    """What the customer is told. Of too many pages as many are taken as may wait."""
    try:
        jobs = render.using(labels={"customer": customer}).enqueue_many((customer, page) for page in range(pages))
    except TenantFull as full:
        return f"{customer}: {full}"
    return f"{customer}: {len(jobs)} pages ordered"


def shares(first: int) -> Counter[str]:
    """Who has how many of the first starts."""
    return Counter(started[:first])
