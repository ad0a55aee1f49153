"""The publisher with the fixture `jobs`, the receiver by what tarry signs, and both together."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples.webhooks.app import app, publish
from examples.webhooks.receiver import Receiver
from tarry.config.config import load
from tarry.push.http.sign import Signer, headers
from tarry.testing import Jobs

ROOT = Path(__file__).resolve().parents[2]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_a_customer_who_is_away_gets_it_later_and_the_other_at_once(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_SECRET", SECRET)
    monkeypatch.setenv("GLOBEX_SECRET", SECRET)
    app.configure(load(Path(__file__).with_name("tarry.toml"), {}))
    jobs.answers["webhook.acme"] = 503, 204
    ids = publish("order.paid", "evt-1", {"order": 7})
    assert publish("order.paid", "evt-1", {"order": 7}) == ids, "the same event again"
    jobs.drain()
    acme, globex = map(app.get, ids)
    assert (acme.state, globex.state) == ("scheduled", "done")
    jobs.advance("1m")
    jobs.drain()
    assert acme.state == "done"
    assert [sent.json["id"] for sent in jobs.sent("webhook.acme")] == ["evt-1", "evt-1"]


def test_a_receiver_takes_what_is_genuine_and_each_event_once() -> None:
    receiver, body = Receiver(SECRET), b'{"type": "order.paid"}'
    sent = dict(headers(Signer([SECRET]), "0193", 1, 0, time.time(), body))
    assert [receiver.take(sent, body), receiver.take(sent, body)] == [204, 204]
    assert receiver.take(sent, b'{"type": "order.free"}') == 401
    assert receiver.take({}, body) == 401
    old = dict(headers(Signer([SECRET]), "0194", 1, 0, time.time() - 301, body))
    assert receiver.take(old, body) == 401
    assert (receiver.events, receiver.refused) == (["order.paid"], 3)


def test_all_of_it_by_real_requests(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "examples.webhooks"],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "globex: order.paid"
