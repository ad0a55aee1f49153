"""The app in which something goes wrong. It is copied beside its store."""

import os
import signal
import time

from tarry import App

app = App(retry=None)


@app.task(queue="mail")
def send(address: str) -> str:
    """Sends a mail."""
    return f"sent to {address}"


@app.task(queue="orders")
def pay(order: int) -> int:
    """Charges a card."""
    return order


@app.task(queue="pictures")
def shrink(name: str) -> None:
    """Its library kills the process."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(queue="slow")
def export(customer: str) -> None:
    """Takes long."""
    time.sleep(600)


@app.task(queue="mail", cron="30 3 * * *", missed="skip")
def night_report() -> str:
    """What was sold yesterday."""
    return "report"
