"""`tarry mcp`: tools for an assistant, by the HTTP API of a server."""

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tarry import __version__
from tarry.errors import ConfigError, UsageError
from tarry.terminal import print_line

URL, TOKEN = "TARRY_MCP_URL", "TARRY_MCP_TOKEN"
_USUAL = "http://127.0.0.1:7800"
_MOST_TOKEN = 10_000


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to the parser."""
    mcp = commands.add_parser(
        "mcp",
        help="tools for an assistant (Model Context Protocol), by the HTTP API of a server",
        description=f"""Speaks the protocol on stdin and stdout; an assistant starts it. The token comes from the
        variable {TOKEN} or a file, never from the command line, which other users see.""",
    )
    mcp.add_argument("--url", help=f"of the server; else {URL}, else {_USUAL}")
    mcp.add_argument("--token-file", metavar="FILE", help=f"the file with the token; else the variable {TOKEN}")
    mcp.add_argument("--write", action="store_true", help="also tools that retry and cancel jobs")
    mcp.set_defaults(run=run_mcp)


def run_mcp(args: argparse.Namespace) -> int:
    """Serves until stdin ends; status 0. ConfigError: the extra is missing."""
    try:
        import anyio  # noqa: PLC0415 - an extra

        from tarry.remote.assistant.mcp_server import serve_tools  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f"assistants need the extra mcp: pip install 'tarry[mcp]' ({error})") from None
    from tarry.remote.assistant.tools import TOOLS  # noqa: PLC0415 - with the above
    from tarry.remote.remote_client import RemoteClient  # noqa: PLC0415 - with the above

    url, token = _read_url(args.url), _read_token(args.token_file)
    tools = {one.name: one for one in TOOLS if args.write or not one.is_write}
    if sys.stdin.isatty():
        print_line("tarry: an assistant is to start this; Ctrl-D ends it", file=sys.stderr)
    with RemoteClient(url, token or None) as client:
        anyio.run(partial(serve_tools, tools, client.methods, token, __version__))
    return 0


def _read_url(given: str | None) -> str:
    url = given or os.environ.get(URL) or _USUAL
    parts = urlsplit(url)
    # It stands in errors.
    if parts.username is not None or parts.password is not None:
        raise UsageError("--url: without a user and a password; the token says who asks")
    return url


def _read_token(file: str | None) -> str:
    if file is None:
        return os.environ.get(TOKEN, "").strip()
    try:
        with Path(file).open(encoding="utf-8") as opened:
            token = opened.read(_MOST_TOKEN).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {file}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"--token-file {file}: it holds no token: one line, as `tarry tokens add` prints it")
    return token
