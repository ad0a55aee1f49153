"""The master of the example: `tarry start` in a directory of its own, until the block ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

LONGEST = 60.0


class Master:
    """Where its commands run."""

    def __init__(self, home: Path, secret: str) -> None:
        self._home = home
        ours = {name: text for name, text in os.environ.items() if not name.startswith("TARRY_")}
        self._environ = ours | {"SHOP_SECRET": secret, "TARRY_MASTER__LOG": str(home / "tarry.log")}

    def __enter__(self) -> "Master":
        self.tarry("start", "--daemon")
        return self

    def __exit__(self, *error: object) -> None:
        self.tarry("stop", "--timeout", "5", check=False)
        self.tarry("quit", check=False)

    def tarry(self, *words: str, check: bool = True) -> str:
        """What a command prints; SystemExit with its error."""
        settings = str(self._home / "tarry.toml")
        command = [sys.executable, "-m", "tarry", "-c", settings, "-a", "examples.shop.app:app", *words]
        done = subprocess.run(command, env=self._environ, capture_output=True, text=True, check=False, timeout=LONGEST)
        if check and done.returncode:
            raise SystemExit(f"tarry {words[0]} failed: {done.stderr.strip()}")
        return done.stdout

    def kill(self, owner: str) -> int:
        """SIGKILL for the worker that jobs know as their `owner`; its pid, or 0 if there is none such."""
        children: list[dict[str, Any]] = json.loads(self.tarry("--json", "status"))["children"]
        pid = next((int(child["pid"]) for child in children if child["owner"] == owner), 0)
        if pid:
            os.kill(pid, signal.SIGKILL)
        return pid
