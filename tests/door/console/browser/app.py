"""The app behind the console in a browser. It is copied beside its store."""

import time
from pathlib import Path

from tarry import App, current_job

HERE = Path(__file__).parent
app = App(retry=None)


@app.task(queue="mail")
def send(address: str, password: str = "") -> str:
    """Sends a mail."""
    print("sending to", address)
    if "@" not in address:
        raise ValueError(f"{address} is no address")
    return f"sent to {address}"


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
