"""How templates are written, so that text of others stays text: read by Jinja's own parser."""

import re
from collections.abc import Iterator

import pytest
from jinja2 import nodes

from tarry.server.console.rendering import environment
from tarry.server.console.translation import LANGUAGES

TEXTS = {"_": 1, "gettext": 1, "ngettext": 2}
"""What makes markup of a text, and how many of its first values are texts."""
FORBIDDEN_FILTERS = {"safe", "xmlattr", "format", "tojson", "urlize", "attr"}
"""What makes markup of any value, or formats by it."""
TABLES = {"sentences"}
"""What `sentence` takes its texts from: names of constants of the code."""
_URL = re.compile(r"\b(?:href|src|action)=\"$")
_BARE = re.compile(r"\s[\w-]+\s*=\s*$")
_HANDLER = re.compile(r"\s(?:on\w+|style|hx-[\w-]+|srcdoc)\s*=", re.IGNORECASE)


def templates() -> list[str]:
    return environment(LANGUAGES[0]).list_templates(["html"])


def complaints(source: str) -> Iterator[str]:
    """What may make more than text of a value."""
    tree = environment(LANGUAGES[0]).parse(source)
    yield from _calls(tree)
    for filter in tree.find_all(nodes.Filter):
        if filter.name in FORBIDDEN_FILTERS or (filter.name == "sentence" and not _is_of_table(filter.node)):
            yield f"line {filter.lineno}: | {filter.name}"
    if [*tree.find_all((nodes.EvalContextModifier, nodes.ScopedEvalContextModifier))]:
        yield "autoescape is changed"
    for output in tree.find_all(nodes.Output):
        yield from _attributes(output)


def _calls(tree: nodes.Template) -> Iterator[str]:
    called = set()
    for call in tree.find_all(nodes.Call):
        if not isinstance(call.node, nodes.Name) or call.node.name not in TEXTS:
            continue
        called.add(id(call.node))
        texts = call.args[: TEXTS[call.node.name]]
        if len(texts) < TEXTS[call.node.name] or not all(_is_literal(one) for one in texts):
            yield f"line {call.lineno}: {call.node.name}() of what is no literal: write | word"
    for name in tree.find_all(nodes.Name):
        if name.name in TEXTS and id(name) not in called:
            yield f"line {name.lineno}: {name.name} by another name"


def _is_literal(node: nodes.Expr) -> bool:
    return isinstance(node, nodes.Const) and isinstance(node.value, str)


def _is_of_table(node: nodes.Expr | None) -> bool:
    return isinstance(node, nodes.Getitem) and isinstance(node.node, nodes.Name) and node.node.name in TABLES


def _attributes(output: nodes.Output) -> Iterator[str]:
    """Values stand in quotes, addresses are made by `url` and `asset`, and no attribute runs anything."""
    before = ""
    for one in output.nodes:
        if isinstance(one, nodes.TemplateData):
            before = one.data
            if _HANDLER.search(before):
                yield f"line {one.lineno}: an attribute that does something"
            continue
        if _BARE.search(before):
            yield f"line {one.lineno}: a value without quotes"
        is_ours = isinstance(one, nodes.Call) and isinstance(one.node, nodes.Name) and one.node.name in ("url", "asset")
        if _URL.search(before) and not is_ours:
            yield f"line {one.lineno}: an address that url() did not make"
        before = ""


@pytest.mark.parametrize("name", templates())
def test_a_template_makes_nothing_but_text_of_values(name: str) -> None:
    loader = environment(LANGUAGES[0]).loader
    assert loader is not None
    source, *_ = loader.get_source(environment(LANGUAGES[0]), name)
    assert list(complaints(source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "{{ _(name) }}", "{{ _('a' ~ name) }}", "{{ _('a' if x else name) }}", "{{ ngettext('one', many, 2) }}",
        "{{ _() }}", "{% set t = _ %}", "{{ f(gettext) }}", "{{ x | map('upper') | map(_) }}", "{{ x | safe }}",
        "{% autoescape false %}{{ x }}{% endautoescape %}", "<a class={{ x }}>", '<a href="{{ x }}">',
        '<a onclick="x">', "<p hx-get='/'>", "{{ x | sentence({}) }}", "{% macro m() %}{{ _(x) }}{% endmacro %}",
        "{% if x %}{{ _(x) }}{% endif %}", "{{ 'a' | format(x) }}",
    ],
)  # fmt: skip
def test_others_are_seen(source: str) -> None:
    assert list(complaints(source)) != []


def test_the_ways_that_are_right_are_none() -> None:
    source = (
        "{{ _('a %(x)s', x=name) }}{{ ngettext('one', 'many', n) }}{{ name | word }}"
        '<a href="{{ url(x) }}" title="{{ x }}">{{ sentences[x] | sentence(y) }}</a>'
    )
    assert list(complaints(source)) == []
