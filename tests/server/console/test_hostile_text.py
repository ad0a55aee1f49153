"""Text of others is text: no page makes an element, an attribute or a format of it, whatever field it is in."""

from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pytest

from tarry import App
from tests.server.console.hostile import TEXT, access, addresses, fill, hostile_app
from tests.server.console.visiting import Visitor
from tests.server.http.calling import api, run


class Elements(HTMLParser):
    """The elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.foreign: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        of_ours = values.get("src") is None or str(values["src"]).startswith("/static/")
        is_local = str(values.get("href", "/")).startswith(("/", "#", "?"))
        is_plain = not any(name.startswith(("on", "hx-")) for name in values)
        if not (of_ours and is_local and is_plain) or values.get("id") == "evil" or (tag == "script" and not values):
            self.foreign.append(self.get_starttag_text() or tag)


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    app = hostile_app()
    yield app
    app.close()


def test_no_page_makes_anything_of_it(app: App, tmp_path: Path) -> None:
    known = fill(app)
    paths = [*addresses(known), f"/nowhere/{TEXT}"]

    async def story() -> list[tuple[str, str, int, list[str]]]:
        async with api(app, access=access(tmp_path)) as client:
            browser = Visitor(client)
            assert (await browser.sign_in("root")).status_code == 303
            found = []
            for path, language in product(paths, ("en", "zh")):
                client.cookies.set("tarry_language", language, domain="tarry.test")
                answer = await browser.get(path)
                found.append((path, language, answer.status_code, Elements(answer.text).foreign))
            return found

    found = run(story)
    assert len({path for path, *_ in found}) > 60
    assert [one for one in found if one[2] != (404 if "nowhere" in one[0] else 200)] == []
    assert [one for one in found if one[3]] == []
