"""What mkdocs calls while it builds the site; mkdocs.yml names this file."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs_build import generated, markdown
from docs_build.nav import expand
from docs_build.repository import Repository

_ROOT = Path(__file__).resolve().parents[1]
_REPOSITORY = Repository(_ROOT)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fills in the patterns of the navigation."""
    found = [file.relative_to(config.docs_dir).as_posix() for file in sorted(Path(config.docs_dir).rglob("*.md"))]
    config.nav = expand(config.nav or [], [*found, *generated.PAGES, *_REPOSITORY.pages])
    return config


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
    return markdown.adapt(_REPOSITORY.relink(text, page.file.src_uri), page.file.src_uri)
