"""What `tarry init --fastapi` writes: as the documentation has it, and in a browser."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.frameworks.serving import ROOT, serving
from tests.servers.chromium import CHROMIUM


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: python -m tests.servers.install")
def test_a_progress_bar(tmp_path: Path) -> None:
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "tarry", "init", "--fastapi"], cwd=tmp_path, env=environ, check=True)
    with serving(["uvicorn", "web:web", "--port", "{port}"], tmp_path) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"http://127.0.0.1:{server.port}/")
        page.click("button")
        expect(page.locator("output")).to_have_text("page 2 of 5", timeout=30_000)
        assert 0.2 <= float(page.locator("progress").evaluate("bar => bar.value")) <= 0.6
        expect(page.locator("output")).to_have_text("5 pages for Ann", timeout=30_000)
        assert page.locator("progress").evaluate("bar => bar.value") == 1
        if shot := os.environ.get("SCREENSHOT"):
            page.screenshot(path=shot)
        assert sum(url.endswith("/events") for url in requests) == 1
        browser.close()


def test_the_documentation_shows_what_is_written() -> None:
    page = (ROOT / "docs/frameworks/fastapi.md").read_text(encoding="utf-8")
    starters = ROOT / "tarry/cli/project/starters/fastapi"
    for name in ("app.py", "web.py"):
        assert f'```python title="{name}"\n{(starters / name).read_text(encoding="utf-8")}```' in page
