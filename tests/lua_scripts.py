"""`python -m tests.lua_scripts`: luacheck over the Redis store's scripts.

A name that is written without `local` or `lib.` is a global, and Redis refuses that when it comes to it: in the middle
of a script, of which it takes back nothing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.servers.install import install

SCRIPTS = Path(__file__).resolve().parents[1] / "tarry" / "store" / "redis" / "lua"
_PACKAGE, _PROGRAM = "lua-check", "luacheck"
_KNOWN = ("--std", "lua51", "--read-globals", "redis", "struct", "cjson", "KEYS", "ARGV", "--globals", "lib")
_IGNORED = ("--ignore", "311", "211/lib")
"""311: the last of several values that a function answers and nobody reads."""


def main() -> int:
    """0 also where there is no luacheck, and one line says so."""
    if not shutil.which(_PROGRAM) and os.getuid() == 0 and shutil.which("apt-get"):
        install([_PACKAGE])
    if not shutil.which(_PROGRAM):
        print(f"no {_PROGRAM} (Debian's {_PACKAGE}), so the Lua scripts are not checked", file=sys.stderr)
        return 0
    return check(SCRIPTS).returncode


def check(folder: Path, capture_output: bool = False) -> "subprocess.CompletedProcess[str]":
    """Runs luacheck, which must be there, over the scripts of a folder."""
    style = ("--max-line-length", "120", "--codes", "--no-color", "--quiet")
    return subprocess.run(
        [_PROGRAM, folder, *_KNOWN, *_IGNORED, *style], check=False, text=True, capture_output=capture_output
    )


if __name__ == "__main__":
    sys.exit(main())
