"""Names that a browser, or a proxy, would take for a step in the path."""

import html
import posixpath
import re
from urllib.parse import unquote, urlsplit

import pytest

from tarry import App
from tarry.model.values.console_paths import name_of, path_part
from tests.server.console.visiting import Visitor, visit

NAMES = [".", "..", "~", "~.", "~~x", "../..", "./x", "a/../b", "a//b", "/a", "a/", "...", "a.b", "ä ?#%"]


def resolved(path: str) -> str:
    """As a browser makes it of a path: `%2e` is a dot, too."""
    parts = [re.sub("%2e", ".", part, flags=re.IGNORECASE) for part in path.split("/")]
    return posixpath.normpath("/".join(parts))


@pytest.mark.parametrize("name", NAMES)
def test_a_path_keeps_the_name(name: str) -> None:
    path = f"/queues/{path_part(name)}"
    assert resolved(path) == path
    assert name_of(unquote(path.removeprefix("/queues/"))) == name


@pytest.mark.parametrize("name", [".", "..", "~x", "../x", "a//b"])
def test_links_lead_to_the_pages(app: App, name: str) -> None:
    app.schedules.put(name, app.named("mail.send").using(queue=name).call("ann"), every="1h")
    app.named("mail.send").using(queue=name).enqueue("ann")
    shown = html.escape(name, quote=False)

    async def story(browser: Visitor) -> None:
        for path, kind in (("/", "queues"), ("/queues", "queues"), ("/schedules", "schedules")):
            page = await browser.text(path)
            links = [
                html.unescape(link) for link in re.findall(rf'href="([^"]*/{kind}/[^"]*)">{re.escape(shown)}<', page)
            ]
            assert links, path
            for link in links:
                where = urlsplit(link).path
                assert resolved(where) == where
                assert f"<h1>{shown}" in (await browser.text(where)).replace("\n", ""), where
        await browser.act(f"/queues/{path_part(name)}/pause")
        assert app.client.store.queues()[name]

    visit(app, story)
