"""`python -m examples.tenants`: see README.md."""

from tempfile import TemporaryDirectory

from examples.tenants.app import app, order, shares, started, subscribe
from tarry.config.config import load

with TemporaryDirectory() as directory:
    app.configure(load(None, {"TARRY_STORE": f"sqlite:///{directory}/tarry.db"}))
    subscribe("acme", "business")
    for customer, pages in (("whale", 400), ("minnow", 5), ("acme", 100), ("whale", 200)):
        print(order(customer, pages))
    app.drain()
    print(
        "starts:", ", ".join(f"{customer} {count}" for customer, count in shares(50).most_common()), "of the first 50"
    )
    print(
        "the minnow, who came after 400 others, was done at start",
        1 + max(i for i, c in enumerate(started) if c == "minnow"),
    )
    app.close()
