"""One bash for a whole page, as a reader has one terminal."""

import os
import select
import shlex
import subprocess
import time
from pathlib import Path

from tests.cli.project import MARK, kill_marked
from tests.docs.transcript import Step, is_all, is_in
from tests.servers.server import READY_WITHIN

COMMAND_WITHIN = 60
LOOKS_FOR = 30


class Shell:
    """Types commands in a folder. What they start is killed by `close`."""

    def __init__(self, folder: Path, environ: dict[str, str], outputs: Path) -> None:
        """outputs: where what commands print is kept."""
        self._mark, self._outputs = str(folder), outputs
        environ = environ | {MARK: self._mark, "SPT_NOENV": "1"}
        self._bash = subprocess.Popen(["bash", "--norc", "--noprofile"], cwd=folder, env=environ, stdin=-1, stdout=-1)
        self._count = 0

    def run(self, step: Step) -> None:
        """Types the command, and compares what it prints."""
        end = time.monotonic() + LOOKS_FOR
        trouble = self._try(step)
        while trouble and step.only_looks and time.monotonic() < end:
            time.sleep(0.1)
            trouble = self._try(step)
        assert not trouble, trouble

    def _try(self, step: Step) -> str:
        """What is not as the page shows it."""
        self._count += 1
        output = self._outputs / f"{self._count}.txt"
        status = self._type(step.command, output)
        if step.is_background:
            return self._wait(step, output)
        printed = output.read_text(encoding="utf-8", errors="replace")
        if status != step.status:
            return f"`$ {step.command}` ends with {status}:\n{printed}{_ended_hint(status)}"
        return "" if not step.expected or is_all(step.expected, printed) else _difference(step, printed)

    def _type(self, command: str, output: Path) -> int:
        """The exit status."""
        assert self._bash.stdin is not None
        line = f"eval {shlex.quote(command)} < /dev/null > {shlex.quote(str(output))} 2>&1; echo $?\n"
        self._bash.stdin.write(line.encode())
        self._bash.stdin.flush()
        answer = self._answer()
        printed = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
        assert answer is not None, f"`$ {command}` does not end within {COMMAND_WITHIN} s:\n{printed}"
        assert answer, f"`$ {command}` ends the shell:\n{printed}"
        return int(answer)

    def _answer(self) -> bytes | None:
        """What bash says of the command; None if it does not end, nothing if bash itself ended."""
        assert self._bash.stdout is not None
        pipe = self._bash.stdout.fileno()
        return os.read(pipe, 100) if select.select([pipe], [], [], COMMAND_WITHIN)[0] else None

    def _wait(self, step: Step, output: Path) -> str:
        end = time.monotonic() + READY_WITHIN
        while not is_in(step.expected, printed := output.read_text(encoding="utf-8", errors="replace")):
            if time.monotonic() > end:
                return _difference(step, printed)
            time.sleep(0.05)
        return ""

    def close(self) -> None:
        """Kills what was started, and the shell."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.close()
        kill_marked(self._mark)
        self._bash.kill()
        self._bash.wait()
        self._bash.stdout.close()


def _difference(step: Step, printed: str) -> str:
    shown = "\n".join(step.expected)
    return (
        f"`$ {step.command}`\n--- the page shows:\n{shown}\n--- it prints:\n{printed}\n--- `...` is any text or lines"
    )


def _ended_hint(status: int) -> str:
    return f"\nIf that is meant, end the command with `# exit status {status}`." if status else ""
