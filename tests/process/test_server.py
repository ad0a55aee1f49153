"""What keeps a server process from serving."""

import re
import subprocess
import sys

import pytest

# In a process of its own: here, the modules of the doors may be loaded already.
CHECK = """
import sys
sys.modules[sys.argv[1]] = None  # makes an import of it fail
from tarry import App
from tarry.errors import ConfigError
from tarry.model.values.listen_address import listen_address
from tarry.process.server_process import check_server
from tarry.config.server_settings import ServerConfig
try:
    check_server(App("memory://"), ServerConfig(http=(listen_address("127.0.0.1:7800"),)))
except ConfigError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("uvicorn", r"\[server\] needs its extra: pip install 'tarry\[server\]' \(.*uvicorn.*\)"),
        # As if a newer tarry was installed, whose files do not fit what runs.
        ("tarry.server.serving.server", r"another tarry is installed than the one that runs: tarry upgrade \(.*\)"),
    ],
)
def test_what_is_missing_is_named(missing: str, said: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CHECK, missing], capture_output=True, text=True, timeout=250, check=True
    )
    assert re.fullmatch(said, ran.stdout.strip())
