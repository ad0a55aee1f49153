"""The shop's four stories, as a newcomer runs them; and what the example says when one of them goes otherwise."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples.shop import account
from examples.shop.account import Promise
from examples.shop.clock import compressed, minutes
from examples.shop.server import Arrival
from examples.shop.signed import genuine
from tarry.push.http.sign import Signer, headers
from tests.test_examples import environ

SETTINGS = Path(__file__).parents[1] / "examples/shop/tarry.toml"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def shop(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "examples.shop", *words]
    return subprocess.run(command, cwd=cwd, env=environ(), capture_output=True, text=True, timeout=250, check=False)


def test_all_four_stories_go_as_planned_over_a_killed_worker(tmp_path: Path) -> None:
    ran = shop("--keep", "run", cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    told = ran.stdout
    assert told.count("is killed with SIGKILL") == 1
    assert "order 7 is looked at, again, since its worker died" in told
    assert "order 9 is looked at" not in told
    assert "Cy is reminded" not in told
    assert 'the job\'s result: {"status": "done"}' in told
    total = told.split("\n\n")[-1].splitlines()[-2]
    assert total.startswith("4 of 4 stories as planned, repeated ")
    assert total.endswith(", lost 0")
    assert not (tmp_path / "run/run/tarry.pid").exists(), "its master has ended"


def test_a_story_that_goes_otherwise_is_said_and_the_status_is_1(tmp_path: Path) -> None:
    settings = SETTINGS.read_text().replace('schedule   = ["1m", "3m", "5m", "7m"]', 'schedule   = ["1m"]')
    (tmp_path / "other.toml").write_text(settings.replace('delay      = "5m"', 'delay = "2m"'))
    ran = shop("--settings", "other.toml", cwd=tmp_path)
    assert ran.returncode == 1
    lines = ran.stdout.splitlines()
    partner = [line.split() for line in lines if line.split()[:2] == ["partner", "no"]]
    assert [(one[2:5], one[-1]) for one in partner] == [(["2", "of", "5"], "3")], ran.stdout
    assert "payment: order 7 is looked at: 1 not planned" in lines
    assert lines[-1].startswith("2 of 4 stories as planned, "), ran.stdout
    assert lines[-1].endswith(", lost 3"), ran.stdout


def test_a_wrong_signature_is_refused(tmp_path: Path) -> None:
    settings = SETTINGS.read_text().replace('"env:SHOP_SECRET"', f'"{SECRET}"')
    (tmp_path / "other.toml").write_text(settings.replace("max_attempts = 60", "max_attempts = 2"))
    ran = shop("--settings", "other.toml", "--minute", "200ms", cwd=tmp_path)
    assert ran.returncode == 1
    assert "requests were refused: their signature is wrong" in ran.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--minute", "soon"], "'soon' is no duration"),
        (["--minute", "1ms"], "1ms is not from 200ms to 60s"),
        (["--keep", "."], ". is not empty; name a new directory"),
        (["--settings", "no.toml"], "no.toml: No such file"),
    ],
)
def test_wrong_options_are_said_and_change_nothing(words: list[str], why: str, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    ran = shop(*words, cwd=tmp_path)
    assert ran.returncode == 2
    assert why in ran.stderr.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_code_to_copy_knows_what_tarry_signed() -> None:
    body, signer = b'{"order": 7}', Signer([SECRET])
    sent = dict(headers(signer, "0193", 1, 0, time.time(), body))
    assert genuine(SECRET, sent, body)
    assert genuine(SECRET, sent | {"webhook-signature": f"v1,AAAA {sent['webhook-signature']}"}, body)
    assert not genuine(SECRET, sent, body + b" ")
    assert not genuine(SECRET, sent | {"webhook-id": "0194"}, body)
    assert not genuine(SECRET, {}, body)
    assert not genuine(SECRET, dict(headers(signer, "0193", 1, 0, time.time() - 301, body)), body)


def test_only_times_are_compressed() -> None:
    written = 'delay = "5m"\nschedule = ["1m", "10m"]\ntimeout = "10s"\nqueue = "m5m"'
    assert (
        compressed(written, 0.5) == 'delay = "2500ms"\nschedule = ["500ms", "5000ms"]\ntimeout = "10s"\nqueue = "m5m"'
    )


def test_an_account_tells_late_early_repeated_lost_and_unplanned() -> None:
    promise = Promise("it", minutes(1000.0, 1.0), (1, 2, 3, 4), {})
    for attempt, at in ((1, 1001.25), (1, 1002.0), (2, 1002.5), (3, 1003.25), (5, 1005.0)):
        promise.take(Arrival("job", attempt, at, "/", ""))
    found = account.of("story", [promise], ["a fault"])
    assert (found.planned, found.arrived, found.latest, found.repeated, found.lost) == (4, 3, 0.25, 1, 1)
    assert found.faults == ["a fault", "it: 2 not planned"]
    assert not found.as_planned
