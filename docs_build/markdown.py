"""What GitHub's Markdown has and Python's reads otherwise."""

import re

from docs_build.life_diagram import draw

_DIAGRAM = re.compile(r"^```mermaid\n.*?^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")


def adapt(text: str, page: str) -> str:
    """The page as mkdocs is to read it."""
    if page == "lifecycle.md":
        text = _DIAGRAM.sub(lambda _: draw(), text)
    lines = (_adapt_row(line) if line.startswith("|") else line for line in text.split("\n"))
    return "\n".join(lines)


def _adapt_row(row: str) -> str:
    r"""In code within a table GitHub wants `\|`; Python's Markdown shows the backslash."""
    return _CODE.sub(lambda code: code[0].replace(r"\|", "|"), row)
