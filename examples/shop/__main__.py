"""`python -m examples.shop [--minute 1s] [--keep DIR]`: the stories told, and the account of them."""

import argparse
import base64
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from examples import shop
from examples.shop import account, clock, stories
from examples.shop.account import Account
from examples.shop.app import app
from examples.shop.master import Master
from examples.shop.server import Server
from examples.shop.stage import Stage
from tarry.config.config import load
from tarry.model.duration import SECOND, microseconds

SETTINGS = Path(__file__).with_name("tarry.toml")
LAST = 16
"""Minutes that the longest story takes."""
LEAST, MOST = 0.2, 60
"""Seconds of a minute: in less, the stories overtake each other."""
PATIENCE = 60.0
"""Seconds beyond that until what has not arrived is lost."""


def told(home: Path, settings: str, minute: float, say: Callable[[str], object]) -> list[Account]:
    """One run in that directory. minute: seconds that a minute of the stories takes."""
    secret = "whsec_" + base64.b64encode(os.urandom(24)).decode()
    with Server(secret) as server:
        written = clock.compressed(settings, minute).replace("https://shop.example", server.url)
        (home / "tarry.toml").write_text(written, encoding="utf-8")
        app.configure(load(home / "tarry.toml", {}))
        with Master(home, secret) as master:
            accounts = _played(server, master, minute, say)
            app.close()
        if server.refused:
            say(f"{server.refused} requests were refused: their signature is wrong")
    return accounts


def _played(server: Server, master: Master, minute: float, say: Callable[[str], object]) -> list[Account]:
    _ = app.client  # connects now, so that the first job does not wait for it
    stage, began = Stage(app, server, say), time.time()
    for plot in (stories.partner, stories.refund, stories.payment):
        stage.begin(plot.__name__, clock.minutes(began, minute), plot)
    stage.begin("membership", clock.days(began, minute), stories.membership)
    killing = threading.Thread(target=_kill, args=(server, master, say), daemon=True)
    killing.start()
    return stage.play(began + LAST * minute + PATIENCE)


def _kill(server: Server, master: Master, say: Callable[[str], object]) -> None:
    """The worker whose request the server holds, as soon as there is one."""
    server.held.wait()
    if pid := master.kill(app.get(server.holding).record().owner):
        say(f"{'':<35}  (its worker, {pid}, is killed with SIGKILL before the answer)")
    server.go_on.set()


def _minute(written: str) -> float:
    """Seconds."""
    try:
        seconds = microseconds(written) / SECOND
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not LEAST <= seconds <= MOST:
        raise argparse.ArgumentTypeError(f"{written} is not from 200ms to 60s")
    return seconds


def _settings(file: str) -> str:
    """Their text."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{file}: {getattr(error, 'strerror', error)}") from None


def _options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="python -m examples.shop", description=shop.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = options.add_argument
    add("--minute", type=_minute, default="1s", help="how long a minute of the stories takes (1s), from 200ms to 60s")
    add("--keep", metavar="DIR", type=Path, help="work in this new directory, and leave it there")
    add("--settings", metavar="FILE", type=_settings, default=str(SETTINGS), help="another tarry.toml, to try it")
    return options


def main() -> int:
    """0 only if all went as planned."""
    options = _options()
    args = options.parse_args()
    if args.keep and args.keep.exists() and any(args.keep.iterdir()):
        options.error(f"--keep: {args.keep} is not empty; name a new directory")
    with tempfile.TemporaryDirectory(prefix="tarry-shop-") as temporary:
        home = (args.keep or Path(temporary)).absolute()
        home.mkdir(parents=True, exist_ok=True)
        say = partial(print, flush=True)
        say(f"tarry with 2 workers in {home}; a minute takes {args.minute:g} s, a day {clock.DAY * args.minute:g} s\n")
        accounts = told(home, args.settings, args.minute, say)
    say("\n" + "\n".join(account.lines(accounts)))
    if args.keep:
        say(f"to look on: cd {home}; tarry jobs; tarry jobs show ID")
    return 0 if all(one.as_planned for one in accounts) else 1


if __name__ == "__main__":
    sys.exit(main())
