"""The page of all methods: its links lead somewhere, and its examples are what the methods take."""

import re
from html import unescape
from typing import Any

import msgspec
import pytest

from tarry.operate.method import Method
from tarry.server.http.description.openapi import openapi_document
from tarry.server.http.description.page import docs_page
from tarry.server.serving.api import METHODS


@pytest.fixture(scope="module")
def page() -> str:
    document: Any = msgspec.json.decode(msgspec.json.encode(openapi_document(METHODS, "1")))
    return docs_page(document)


def test_each_link_has_its_place_and_each_place_its_own_name(page: str) -> None:
    places = re.findall(r' id="([^"]+)"', page)
    links = set(re.findall(r' href="#([^"]+)"', page))
    assert len(places) == len(set(places))
    assert links <= set(places)
    assert {method.name for method in METHODS} <= links


def test_no_mark_of_the_source_is_left(page: str) -> None:
    assert "`" not in page
    assert "None" not in page


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_its_example_is_what_the_method_takes(page: str, method: Method) -> None:
    (part,) = re.findall(rf'<h3 id="{method.name}".*?<pre>(.*?)</pre>', page, re.DOTALL)
    command = unescape(part)
    assert f"http://localhost:7800{method.route}" in command
    taken = method.parts.get("body", method.reads)
    found = re.search(r"--json '(.*)'$", command)
    if found is not None:
        msgspec.json.decode(found[1], type=taken)
    elif taken is not None:
        # All of it may be left out.
        msgspec.json.decode(b"{}", type=taken)
    verb = re.search(r"-X (\w+)", command)
    assert (verb[1] if verb else "POST" if found else "GET") == method.verb


def test_a_text_of_the_document_is_no_html() -> None:
    document = openapi_document(METHODS[:1], "<b>")
    document["info"]["description"] = "a < b & `c <i>`"
    shown = docs_page(document)
    assert "<b>" not in shown
    assert "a &lt; b &amp; <code>c &lt;i&gt;</code>" in shown
