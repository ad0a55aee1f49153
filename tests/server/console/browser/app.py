"""The app behind the console in a browser. It is copied beside its store."""

import smtplib
import time
from pathlib import Path
from typing import Any

from tarry import App, Retry, approve, current_job, sleep, step

HERE = Path(__file__).parent
app = App(retry=None)


@app.task(queue="mail", limit_by=lambda address: address)
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


@app.task(queue="mail")
def work(what: str, given: list[Any] | None = None) -> str:
    """A part of an order."""
    if what == "fail" and not (HERE / "mended").exists():
        raise LookupError("no such card")
    return what


@app.task(queue="mail")
def place_order(number: int, gate: str, last: str = "mail the receipt") -> str:
    """Places an order as a flow, whose parcels wait at the gate; returns the id of the flow."""
    with app.flow("order", key=str(number), deadline="2d") as f:
        stock = f.add(work.call("stock"), name="check the stock")
        paid = f.add(work.call("card"), name="charge the card", undo=work.call("refund"))
        address = f.add(work.call("address"), name="check the address")
        invoice = f.add(work.call("invoice", [paid.result]), name="write the invoice")
        f.add(work.call("fail"), name="tell the bonus club", on_failure="go_on")
        parcel = wait.using(queue="stuck")
        parcels = f.add_all([parcel.call(gate if part > 3 else "app.py") for part in range(12)], after=[stock, paid])
        label = f.add(work.call("label", [address.result]), name="print the label")
        handed = f.add(work.using(delay="10m").call("hand over", [label.result]), after=[parcels], name="hand over")
        f.add(work.call("books", [invoice.result]), after=[handed], name="close the books")
        f.add(work.call("mail"), after=[handed, invoice], name=last)
    return str(f.handle.id)


@app.task(queue="mail")
def place_broken(number: int) -> str:
    """Places a flow that fails, unless it is mended; returns its id."""
    with app.flow("refund", key=str(number)) as f:
        paid = f.add(work.call("fail"), name="find the card")
        f.add(work.call("refund", [paid.result]), name="pay back")
    return str(f.handle.id)


@app.task(queue="mail")
def ask(number: int) -> str:
    """Pays back if somebody approves; returns what was decided."""
    step(str, "70")
    said = approve("refund of 70", key=str(number), timeout="2d")
    return f"{said.ok} by {said.by}: {said.note}" if said else "nobody"


@app.task(queue="mail")
def rest(number: int) -> None:
    """Sleeps for days."""
    step.named("look up the order")(str, number)
    sleep("3d")
