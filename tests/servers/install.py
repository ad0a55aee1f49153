"""`python -m tests.servers.install`: installs what the tests start besides Python, where it may; else says what is
missing: servers, a browser, shells, Prometheus (19 MB, 96 MB once installed), the languages of the examples (but Go,
which is large: its example runs where Go is), clients of the beanstalk protocol, and a C compiler."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import npm
from tests.servers.postgres import FOLDERS
from tests.servers.server import Missing, program

PACKAGES = {
    "redis-server": ("redis-server", "valkey-server"),
    "postgresql": ("initdb",),
    "pgbouncer": ("pgbouncer",),
    "mariadb-server": ("mariadbd", "mysqld"),
    "beanstalkd": ("beanstalkd",),
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "curl": ("curl",),
    "jq": ("jq",),
    "nodejs": ("node",),
    "php-cli": ("php",),
    "ruby": ("ruby",),
    "zsh": ("zsh",),
    "fish": ("fish",),
    "prometheus": ("promtool",),
    "gcc": ("cc", "gcc"),
}
"""Debian's package, and the program that it brings, under any of its names."""
PREFERRED = {"chromium-headless-shell": ("chromium-headless-shell",)}
"""As these: what is used in place of one of them where Debian has it."""
LIBRARIES = {
    "php-pda-pheanstalk": Path("/usr/share/php/Pheanstalk/autoload.php"),
    "libc6-dev": Path("/usr/include/stdio.h"),
    "ruby-beaneater": Path("/usr/lib/ruby/vendor_ruby/beaneater.rb"),
}
"""Debian's package, and a file that it brings."""
_POLICY = Path("/usr/sbin/policy-rc.d")


def main() -> int:
    """Always 0: without a server its tests are skipped."""
    missing = _missing()
    if missing and os.getuid() == 0 and shutil.which("apt-get"):
        print(f"installing {', '.join(missing)}: for tests, which start their own", file=sys.stderr)
        install(missing)
        missing = _missing()
    if os.getuid() == 0 and shutil.which("apt-get") and (better := [*_offered()]):
        install(better)
    npm.install()
    if not npm.is_installed():
        missing.append("clients of npm")
    if missing:
        print(f"not installed, so their tests are skipped: {', '.join(missing)}", file=sys.stderr)
    return 0


def _missing() -> list[str]:
    programs = [package for package, names in PACKAGES.items() if not _there(*names)]
    return programs + [package for package, file in LIBRARIES.items() if not file.exists()]


def _offered() -> Iterator[str]:
    for package, names in PREFERRED.items():
        show = ["apt-cache", "show", "--quiet", package]
        if not _there(*names) and subprocess.run(show, capture_output=True, check=False).returncode == 0:
            yield package


def _there(*programs: str) -> bool:
    try:
        program(*programs, among=FOLDERS)
    except Missing:
        return False
    return True


def install(packages: list[str]) -> None:
    """Debian's packages of these names, by the root of a machine that has apt-get; starts none of their servers."""
    command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *packages]
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    with _none_started():
        if subprocess.run(command, env=quiet, stdout=sys.stderr, check=False).returncode:
            subprocess.run(["apt-get", "update", "--quiet"], env=quiet, stdout=sys.stderr, check=False)
            subprocess.run(command, env=quiet, stdout=sys.stderr, check=False)


@contextmanager
def _none_started() -> Iterator[None]:
    """Debian starts what it installs, on the standard ports: not wanted here."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()


if __name__ == "__main__":
    sys.exit(main())
