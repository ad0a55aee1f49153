"""The site that `make docs` builds: complete, and nothing on it asks anything of another host."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

import tarry
from docs_build import life_diagram
from docs_build.nav import expand
from docs_build.python_pages import PAGES, without_page
from docs_build.repository import PAGES as FILES
from docs_build.repository import Repository
from tarry.cli.main import COMMAND_MODULES
from tarry.config.config import Config
from tarry.config.parser import forms
from tarry.model.job import State
from tarry.server.serving.api import METHODS
from tests.docs.pages import ROOT
from tests.docs.site import build, build_whole, served
from tests.lifecycle_page import Way
from tests.once import made_once
from tests.server.console.browser.conftest import browser  # noqa: F401 - one Chromium for a module

pytestmark = pytest.mark.timeout(400)
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("use", "href")}
NOT_LOADED = {"canonical", "prev", "next", "alternate"}
"""`rel` of links to other pages."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "site", build_whole)


class Resources(HTMLParser):
    """What a browser loads for a page, and the ids on it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.ids.add(named.get("id", ""))
        if named.get("rel") not in NOT_LOADED:
            self.urls += [value for name, value in named.items() if (tag, name) in LOADED]


def text_at(site: Path, page: str) -> str:
    return (site / page / "index.html").read_text(encoding="utf-8")


def test_no_page_names_a_resource_of_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    found = {url for page in pages for url in Resources(page.read_text(encoding="utf-8")).urls}
    assert [url for url in sorted(found) if re.match(r"(\w+:)?//", url)] == []
    styles = "".join(file.read_text(encoding="utf-8") for file in site.rglob("*.css"))
    assert re.findall(r"url\(\s*[\"']?(?:https?:)?//[^)]*\)|@import[^;]*//[^;]*;", styles) == []


def troubles(page: Page, base: str) -> list[str]:
    """What is asked of others from now on, and what goes wrong."""
    trouble: list[str] = []
    page.on("request", lambda sent: trouble.append(sent.url) if not sent.url.startswith((base, "data:")) else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("response", lambda got: trouble.append(f"{got.status} {got.url}") if got.status >= 400 else None)
    return trouble


def test_a_browser_asks_nothing_of_another_host(site: Path, browser: Browser) -> None:  # noqa: F811
    """Also on a phone, where no page is wider than its screen."""
    with served(site) as url:
        page = browser.new_page(viewport={"width": 390, "height": 844})
        trouble = troubles(page, url)
        # To prepare the search takes a second on each page; test_it_is_searched_without_another_host has it.
        index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8")) | {"docs": []}
        page.route("**/search_index.json", lambda route: route.fulfill(json=index))
        for file in sorted(site.rglob("index.html")):
            path = file.parent.relative_to(site).as_posix()
            page.goto(f"{url}{path}/")
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
        page.wait_for_load_state("networkidle")
        assert trouble == []
        page.close()


def test_it_is_searched_without_another_host(site: Path, browser: Browser) -> None:  # noqa: F811
    with served(site) as url:
        page = browser.new_page()
        trouble = troubles(page, url)
        page.goto(url)
        query = page.locator("[data-md-component=search-query]")
        query.click()
        query.press_sequentially("snooze")
        page.locator(".md-search-result__link").first.wait_for(state="attached", timeout=60_000)
        # What is found within a page may be folded below it.
        assert "nooze" in (page.locator(".md-search-result__list").text_content() or "")
        assert trouble == []
        page.close()


def test_every_name_that_users_import_has_a_place(site: Path) -> None:
    assert without_page() == set()
    for path, page in PAGES.items():
        ids = Resources(text_at(site, path.removesuffix(".md"))).ids
        assert [name for name in page.names if f"{page.module}.{name}" not in ids] == []
    assert "tarry.App.task" in Resources(text_at(site, "reference/app")).ids, "what it inherits, too"
    assert "tarry.errors.StoreFull" in Resources(text_at(site, "reference/errors")).ids
    assert tarry.__all__


def test_every_command_is_in_the_reference(site: Path) -> None:
    ids = Resources(text_at(site, "reference/command-line")).ids
    assert [name for names in COMMAND_MODULES.values() for name in names if f"tarry-{name}" not in ids] == []
    assert "--priority PRIORITY" in text_at(site, "reference/command-line")


def test_every_setting_is_in_the_reference(site: Path) -> None:
    text = text_at(site, "reference/settings")
    sections = [kind for _, kind in forms(Config).values() if isinstance(kind, type)]
    names = [name for kind in (Config, *sections) for name in forms(kind)]
    assert len(names) > 40
    assert [name for name in names if name not in text] == []
    assert "TARRY_MASTER__PID_FILE" in text
    assert "TARRY_STORE" in text


def test_every_method_of_the_api_is_in_the_reference(site: Path) -> None:
    ids = Resources(text_at(site, "reference/http-api")).ids
    assert [method.name for method in METHODS if method.name not in ids] == []
    assert "object-problem" in ids


def test_programs_find_the_markdown_of_each_page(site: Path) -> None:
    listed = set(re.findall(r"\]\(([^)]+)\): \S", (site / "llms.txt").read_text(encoding="utf-8")))
    pages = {file.relative_to(site).with_suffix(".md").as_posix() for file in site.rglob("index.html")}
    assert listed == pages
    gone = [
        f"{page}: {link}"
        for page in sorted(pages)
        for link in re.findall(r"\]\(([^)#\s:]+\.md)", (site / page).read_text(encoding="utf-8"))
        if not (site / page).parent.joinpath(link).resolve().is_file()
    ]
    assert gone == []
    assert "### App.task\n" in (site / "reference/app/index.md").read_text(encoding="utf-8"), "names are written out"


def test_each_page_names_its_markdown(site: Path) -> None:
    pages = sorted(site.rglob("index.html"))
    heads = {page: page.read_text(encoding="utf-8").partition("</head>")[0] for page in pages}
    named = {
        page: re.findall(r'<link rel="alternate" type="text/markdown" href="([^"]+)">', head)
        for page, head in heads.items()
    }
    assert named == {page: ["index.md"] for page in pages}
    assert [page for page in pages if not page.with_name("index.md").is_file()] == []


def test_the_search_ranks_guides_above_what_has_every_word(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))["docs"]
    boost = {one["location"]: one.get("boost", 1) for one in index}
    assert boost["tasks/"] == 1
    assert boost["reference/errors/"] < 1
    assert boost["project/measurements/"] < 1


def test_the_states_of_a_job_are_drawn_as_they_are(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = text_at(site, "lifecycle")
    assert [state for state in State if f">{state}</text>" not in page] == []
    assert "mermaid" not in page
    monkeypatch.setattr(life_diagram, "ways", lambda: [Way("new", "Something new", "done", "blocked", "no")])
    with pytest.raises(ValueError, match=r"ended.*blocked"):
        life_diagram.draw()


def test_each_link_to_nothing_is_told_and_the_build_fails(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "tasks.md").write_text("# Tasks\n")
    links = ("nowhere.md", "tasks.md#nothing", "../no/file.txt")
    (docs / "index.md").write_text("# Home\n\n" + "".join(f"[there]({link})\n" for link in links))
    (tmp_path / "mkdocs.yml").write_text(
        f"INHERIT: {ROOT}/mkdocs.yml\ndocs_dir: {docs}\nnav: []\nplugins: []\nextra_css: []\n"
        f"hooks: [{ROOT}/docs_build/hooks.py]\n"
    )
    complaints = build(tmp_path / "site", "--config-file", str(tmp_path / "mkdocs.yml"))
    assert [told for told in ("nowhere.md", "#nothing", "file.txt") if told not in complaints] == []


def test_the_navigation_has_what_is_there() -> None:
    nav = [
        "index.md",
        {"How to": ["howto/b.md", "howto/gone.md", "howto/*.md"]},
        {"Gone": ["gone/*.md"]},
        {"F": "f.md"},
    ]
    there = ["index.md", "howto/a.md", "howto/b.md", "howto/deep/c.md", "f.md"]
    assert expand(nav, there) == ["index.md", {"How to": ["howto/b.md", "howto/a.md"]}, {"F": "f.md"}]


def test_links_out_of_docs_lead_to_the_same_file(tmp_path: Path) -> None:
    for name in (*FILES, "deploy/tarry.service"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("[tasks](../docs/tasks.md#a) [unit](tarry.service)\n")
    repository = Repository(tmp_path)
    page = "[log](../CHANGELOG.md) [unit](../deploy/tarry.service) [own](flows.md#b) [far](https://example.org/)"
    assert repository.relink(page, "operations.md") == (
        "[log](project/changelog.md) [unit](files/deploy/tarry.service) [own](flows.md#b) [far](https://example.org/)"
    )
    shown = repository.pages["project/deploy.md"]
    assert repository.relink(shown, "project/deploy.md") == (
        "[tasks](../tasks.md#a) [unit](../files/deploy/tarry.service)\n"
    )
    assert repository.linked({"project/deploy.md": shown}) == {
        "files/deploy/tarry.service": tmp_path / "deploy/tarry.service"
    }
