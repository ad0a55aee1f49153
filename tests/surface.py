"""The public surface: what `import tarry` has. `python -m tests.surface` writes it to public_surface.txt.

One line a name, inherited ones too: functions and methods with their arguments, types and defaults; attributes with
their types. Names that begin with an underscore, and what lives in the modules behind, are not part of it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_name("public_surface.txt")


def surface() -> str:
    """The text of the file, sorted by name."""
    package: Any = griffe.load("tarry", search_paths=[str(ROOT)], allow_inspection=False)
    exported = package.exports or ()
    lines = [line for name in sorted(map(str, exported)) for line in _describe(name, package.members[name])]
    return "\n".join(lines) + "\n"


def _describe(path: str, found: Any) -> Iterator[str]:
    target = found.final_target if found.is_alias else found
    if target.is_class:
        bases = ", ".join(map(str, target.bases))
        yield f"class {path}({bases})" if bases else f"class {path}"
        for name, member in sorted(target.all_members.items()):
            # An alias that is not inherited is an import in the body of the class.
            if (not member.is_alias or member.inherited) and (not name.startswith("_") or name == "__init__"):
                yield from _describe(f"{path}.{name}", member)
    elif target.is_function:
        for one in target.overloads or [target]:
            yield ("async " if "async" in target.labels else "") + one.signature(name=path)
    else:
        yield _attribute(path, target)


def _attribute(path: str, attribute: Any) -> str:
    annotation = f": {attribute.annotation}" if attribute.annotation is not None else ""
    value = f" = {attribute.value}" if attribute.value is not None else ""
    return f"{path}{annotation}{value}"


if __name__ == "__main__":
    FILE.write_text(surface(), encoding="utf-8")
    print(f"wrote {FILE.relative_to(ROOT)}")
