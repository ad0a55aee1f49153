"""The site, built once for all tests of a run."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.docs.pages import ROOT


def build(site: Path, *options: str) -> str:
    """Builds it there; what mkdocs complains of, empty if all is well."""
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site), *options],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return ran.stderr if ran.returncode else ""


def build_whole(site: Path) -> None:
    """Builds it there; nothing is complained of."""
    complaints = build(site)
    assert not complaints, complaints


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Says nothing."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The URL at which its files are served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()
