"""`python -m examples.webhooks`: see README.md."""

import base64
import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from examples.webhooks.app import app, publish
from examples.webhooks.receiver import Receiver, served
from tarry.config.config import load

SETTINGS = Path(__file__).with_name("tarry.toml").read_text(encoding="utf-8")


def main() -> int:
    """Two customers, of whom one is away at first; a second for an hour."""
    secrets = {name: "whsec_" + base64.b64encode(os.urandom(24)).decode() for name in ("ACME_SECRET", "GLOBEX_SECRET")}
    os.environ.update(secrets)
    acme, globex = Receiver(secrets["ACME_SECRET"], failures=2), Receiver(secrets["GLOBEX_SECRET"])
    with TemporaryDirectory() as directory, served(acme) as to_acme, served(globex) as to_globex:
        written = re.sub(r"schedule = \[.*\]", 'schedule = ["500ms", "1s", "2s"]', SETTINGS)
        for name, url in (("acme", to_acme), ("globex", to_globex)):
            written = written.replace(f"https://{name}.example/hooks", url)
        settings = Path(directory, "tarry.toml")
        settings.write_text(f'store = "sqlite:///{directory}/tarry.db"\n{written}\n[push]\nallow = ["127.0.0.1/32"]\n')
        app.configure(load(settings, os.environ))
        with app.running():
            ids = [*publish("order.paid", "evt-1", {"order": 7}), *publish("order.shipped", "evt-2", {"order": 7})]
            publish("order.paid", "evt-1", {"order": 7})  # our code ran twice: it is one event all the same
            for id in ids:
                app.get(id).result(timeout=30)
        app.close()
    print(f"acme, which answered 503 twice: {', '.join(sorted(acme.events))}")
    print(f"globex: {', '.join(globex.events)}")
    return int((sorted(acme.events), globex.events) != (["order.paid", "order.shipped"], ["order.paid"]))


if __name__ == "__main__":
    sys.exit(main())
