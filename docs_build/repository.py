"""Files of the repository on the site: some as pages, and those that pages link to as they are."""

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

EXAMPLES = ("progress", "django_shop", "tenants", "webhooks", "assistant", "shop")

PAGES = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "bench/RESULTS.md": "project/measurements.md",
    "deploy/README.md": "project/deploy.md",
    "examples/README.md": "examples/index.md",
    **{f"examples/{name}/README.md": f"examples/{name}.md" for name in EXAMPLES},
}
"""Files that are pages of the site: where each is."""
_DOCS, _FILES = "docs/", "files/"
_LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")


class Repository:
    """The repository at `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def pages(self) -> dict[str, str]:
        """Files that are pages of the site: their text by the page's path."""
        return {page: (self._root / file).read_text(encoding="utf-8") for file, page in PAGES.items()}

    def linked(self, texts: Mapping[str, str]) -> dict[str, Path]:
        """What these pages link to besides pages: files by their path on the site."""
        found: dict[str, Path] = {}
        for page, text in texts.items():
            for _, link, _ in _LINK.findall(text):
                target = self._target(page, link)
                if target.startswith(_FILES) and (file := self._root / target.removeprefix(_FILES)).is_file():
                    found[target] = file
        return found

    def relink(self, text: str, page: str) -> str:
        """The text of a page, its links out of docs/ changed to where the site has that file. A link to nothing stays,
        for mkdocs to complain of it."""
        return _LINK.sub(lambda link: link[1] + self._relative(page, link[2]) + link[3], text)

    def _relative(self, page: str, link: str) -> str:
        target = self._target(page, link)
        return os.path.relpath(target, PurePosixPath(page).parent)

    def _target(self, page: str, link: str) -> str:
        """The path on the site of what a link on a page leads to."""
        home = next((file for file, one in PAGES.items() if one == page), _DOCS + page)
        path = os.path.normpath(PurePosixPath(home).parent / link)
        if path.startswith(_DOCS):
            return path.removeprefix(_DOCS)
        return PAGES.get(path, _FILES + path)
