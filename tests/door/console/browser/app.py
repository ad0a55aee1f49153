"""The app behind the console in a browser. It is copied beside its store."""

import smtplib
import time
from pathlib import Path

from tarry import App, Retry, current_job

HERE = Path(__file__).parent
app = App(retry=None)


@app.task(queue="mail")
def send(address: str, password: str = "") -> str:
    """Sends a mail."""
    print("sending to", address)
    if "@" not in address:
        raise ValueError(f"{address} is no address")
    return f"sent to {address}"


@app.task(queue="mail", retry=Retry(1, base=0.01))
def deliver(address: str, port: int) -> str:
    """Sends a mail by SMTP."""
    with smtplib.SMTP("127.0.0.1", port, timeout=10) as server:
        server.sendmail("shop@example.org", [address], "Subject: Your order\n\nIt is on its way.")
    return f"delivered to {address}"


@app.task(queue="slow")
def wait(gate: str) -> str:
    """Runs until the file is there."""
    current_job().progress(0.4, "waiting at the gate")
    while not (HERE / gate).exists():
        time.sleep(0.01)
    return "through the gate"


@app.task(queue="mail", cron="0 3 * * *")
def nightly() -> str:
    """Tidies up."""
    return "tidy"


@app.task(queue="stuck")
def hang() -> None:
    """Ignores whoever wants to end it."""
    while True:
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            pass
