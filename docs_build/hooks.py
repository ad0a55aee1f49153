"""What mkdocs calls while it builds the site; mkdocs.yml names this file."""

import os
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

from docs_build import generated, markdown, plain
from docs_build.nav import expand
from docs_build.repository import Repository

_ROOT = Path(__file__).resolve().parents[1]
_REPOSITORY = Repository(_ROOT)
_BOOST = {"reference": 0.5, "project": 0.2, "index.md": 0.5}
"""How much less what is found there counts for the search: each name and each measurement stands there, too. By folder
or page."""

_texts: dict[str, str] = {}
_navs: list[Navigation] = []


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fills in the patterns of the navigation."""
    found = [file.relative_to(config.docs_dir).as_posix() for file in sorted(Path(config.docs_dir).rglob("*.md"))]
    config.nav = expand(config.nav or [], [*found, *generated.PAGES, *_REPOSITORY.pages])
    if os.environ.get("MIKE_DOCS_VERSION"):
        # The list of versions is one level above: without mike there is none, and each page would ask for it.
        config.extra["version"] = {"provider": "mike"}
    _texts.clear()
    return config


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Keeps the navigation for llms.txt."""
    _navs[:] = [nav]
    return nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are written now, and files of the repository that pages link to."""
    for path, write in generated.PAGES.items():
        files.append(File.generated(config, path, content=write()))
    for path, text in _REPOSITORY.pages.items():
        files.append(File.generated(config, path, content=text))
    sources = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for path, file in _REPOSITORY.linked(sources).items():
        files.append(File.generated(config, path, abs_src_path=str(file)))
    return files


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Makes the Markdown of GitHub that of mkdocs."""
    path = page.file.src_uri
    text = _REPOSITORY.relink(text, path)
    _texts[path] = plain.plain_text(text, path)
    page.meta.setdefault("search", {"boost": _BOOST.get(path.partition("/")[0], 1)})
    return markdown.adapt(text, path)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Names the Markdown of the page in its head."""
    return output.replace("</head>", f"{plain.link(page.file.src_uri)}</head>", 1)


def on_post_build(config: MkDocsConfig) -> None:
    """Writes what programs read."""
    plain.write(Path(config.site_dir), _navs[0], config.site_description or "", _texts)
