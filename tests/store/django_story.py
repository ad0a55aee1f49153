"""What a program of Django's does and sees, on whatever database: within `atomic`, after it, and outside."""

import subprocess
import sys

_STORY = """
from django.db import connection, transaction
from tarry import App, errors
app = App(sys.argv[-1])

@app.task(name="tests.within")
def task(n: int) -> None: ...

with transaction.atomic():
    kept = task.using(connection=connection).enqueue(1)
    print(app.client.store.counts())
print(kept.state)
try:
    with transaction.atomic():
        task.using(connection=connection).enqueue(2)
        raise KeyError
except KeyError:
    print(len(app.client.store.counts()))
try:
    task.using(connection=connection).enqueue(3)
except errors.StoreError as error:
    print(error)
app.close()
"""


def told(setup: str, *words: str) -> list[str]:
    """What it prints. setup: configures Django's database by `sys.argv`: these words, the store's URL last."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"import sys\n{setup}\n{_STORY}", *words],
        timeout=250, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
