"""How the code stands, in figures: `python -m tests.house`. docs/architecture.md keeps the last ones."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

from tests.test_layers import PACKAGE, circles, folder_of, imports, modules, outline, statements

SMALL = 40
"""Lines: a module that is smaller and has one importer is a fragment."""

FIELD, OPERATION = "key_ttl", "pause_queue"
"""Where one of a kind is named is where the next of its kind has to be."""

_NOUNS = frozenset({"mapping", "ping", "ring", "setting", "string", "succeed", "wiring"})


def figures(package: Path = PACKAGE) -> dict[str, int | float]:
    """Each by its name, as docs/architecture.md has it. Sizes are lines; what several have is `median / p95 / most`."""
    files = [file.read_text(encoding="utf-8") for _, file in modules(package)]
    lengths = [len(text.splitlines()) for text in files]
    functions = [length for _, file in modules(package) for length in _functions(file)]
    return {
        "largest circle of imports": max((len(one) for one in circles(package)), default=1),
        "largest circle of folders": max((len(one) for one in circles(package, folder_of)), default=1),
        "biggest folder, in modules": max(Counter(file.parent for _, file in modules(package)).values()) - 1,
        "file, median": median(lengths),
        "file, p95": _p95(lengths),
        "file, longest": max(lengths),
        "function, median": median(functions),
        "function, p95": _p95(functions),
        "function, longest": max(functions),
        f"modules with one importer and under {SMALL} lines": len(fragments(package)),
        "names of types that mean two things": len(homonyms(package)),
        "names of functions that are a participle": len(participles(package)),
        f"files that name `{FIELD}`, a field of a job": len(touches(FIELD, package)),
        f"files that name `{OPERATION}`, an operation": len(touches(OPERATION, package)),
        "lines": sum(lengths),
    }


def comments_percent(package: Path = PACKAGE) -> float:
    """The part of its lines that are comments, in percent."""
    files = [file.read_text(encoding="utf-8") for _, file in modules(package)]
    return round(100 * sum(map(_comments, files)) / sum(len(text.splitlines()) for text in files), 1)


def fragments(package: Path = PACKAGE) -> list[str]:
    """Modules under SMALL lines that only one other imports."""
    found = list(modules(package))
    names = {module for module, _ in found}
    importers: dict[str, set[str]] = {}
    for module, file in found:
        for imported, _ in imports(module, file, names):
            if imported in names and imported != module:
                importers.setdefault(imported, set()).add(module)
    small = {module for module, file in found if len(file.read_text(encoding="utf-8").splitlines()) < SMALL}
    return sorted(module for module in small if len(importers.get(module, ())) == 1)


def homonyms(package: Path = PACKAGE) -> dict[str, list[str]]:
    """Names of types that stand for one thing here and another there, with the modules: classes, aliases and type
    variables of more than a letter, also those of one module."""
    homes: dict[str, list[str]] = {}
    for module, file in modules(package):
        for name in _types(statements(file)):
            homes.setdefault(name.lstrip("_"), []).append(module)
    return {name: where for name, where in sorted(homes.items()) if len(where) > 1}


def participles(package: Path = PACKAGE) -> list[str]:
    """Functions whose name is one word that says neither what is done nor what is returned: `_counted`, `waiting`."""
    return [
        f"{module}: {node.name}"
        for module, file in modules(package)
        for node in outline(file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and re.fullmatch(r"_?[a-z]+(ing|ed)", node.name)
        and node.name.lstrip("_") not in _NOUNS
        and not any(isinstance(made_by, ast.Name) and "property" in made_by.id for made_by in node.decorator_list)
    ]


def touches(name: str, package: Path = PACKAGE) -> list[str]:
    """The files that have the name as a word, of any language."""
    word = re.compile(rf"\b{name}\b")
    return [
        str(file.relative_to(package))
        for file in sorted(package.rglob("*"))
        if file.suffix in (".py", ".lua", ".sql", ".toml", ".html", ".js")
        and name in (text := file.read_text("utf-8"))  # tells most of them in a hundredth of the time
        and word.search(text)
    ]


def _types(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_type(name, value):
                yield name


def _is_type(name: str, value: ast.expr) -> bool:
    """Is it an alias, or a type variable?"""
    if not name.lstrip("_")[:1].isupper() or name.isupper() or re.fullmatch(r"[A-Z]_(co|contra)", name):
        return False
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in ("TypeVar", "ParamSpec", "NewType")
    return isinstance(value, ast.Subscript | ast.BinOp)


def _functions(file: Path) -> Iterator[int]:
    for node in outline(file):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def _comments(text: str) -> int:
    """Lines with a comment that speaks to people."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    said = (token.string for token in tokens if token.type == tokenize.COMMENT)
    return sum(not comment.startswith(("# noqa", "# type:", "# fmt:", "#!")) for comment in said)


def _p95(numbers: list[int]) -> int:
    return round(quantiles(numbers, n=20)[-1])


if __name__ == "__main__":
    for name, figure in (figures() | {"comments, in percent of lines": comments_percent()}).items():
        print(f"{figure:>8,}  {name}")
