"""Settings that do not exist, or are of another kind."""

from tarry import App
from tests.typing.shop import send

app = App()


def work(a: int) -> int:
    return a


def settings() -> None:
    send.using(dealy=5)  # error
    send.using(delay=[5])  # error
    send.using(5)  # error
    send.using(priority="high")  # error
    send.using(on_duplicate="replaec")  # error
    app.task(retries=5)(work)  # error
    app.task(queue=5)(work)  # error
    app.task(5)  # error
    app.task()(5)  # error
    app.task("name")  # error
