"""Placeholders: what they are filled with, how it is escaped, and that a body never chooses where a request goes."""

import json
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tarry.push.endpoint.template import Template, TemplateError, UrlTemplate
from tarry.push.rule.rule_errors import SettingSyntaxError

BODY = {
    "order": 7,
    "customer": {"id": "a/b c?#&+%é", "name": "b c?#&+%é", "vip": True, "rate": 1.5, "none": None},
    "items": [10, {"n": "x"}],
    "2": "two",
}


@pytest.mark.parametrize(
    ("url", "filled"),
    [
        ("https://h/orders/{order}", "https://h/orders/7"),
        ("https://h/{customer.name}/x", "https://h/b%20c%3F%23%26%2B%25%C3%A9/x"),
        ("https://h/?c={customer.id}&n={ items.1.n }", "https://h/?c=a%2Fb%20c%3F%23%26%2B%25%C3%A9&n=x"),
        ("https://h?o={order}", "https://h?o=7"),
        ("https://h/{items.0}-{2}{customer.vip}.{customer.rate}", "https://h/10-twotrue.1.5"),
        ("https://h/{{order}}?a={{{order}}}", "https://h/%7Border%7D?a=%7B7%7D"),
        ("HTTP://[::1]:8080/a%20b/é", "HTTP://[::1]:8080/a%20b/é"),
        ("https://h/?a=1?b={order}", "https://h/?a=1?b=7"),
    ],
)
def test_placeholders_are_filled_and_escaped_for_their_place(url: str, filled: str) -> None:
    assert UrlTemplate.parse(url).fill(BODY) == filled


@pytest.mark.parametrize(
    ("url", "body", "told"),
    [
        ("https://h/{nothing}", BODY, "{nothing}: the body has no nothing there"),
        ("https://h/{customer.age}", BODY, "{customer.age}: the body has no age there"),
        ("https://h/{order.id}", BODY, "{order.id}: the body has no id there"),
        ("https://h/{items.2}", BODY, "{items.2}: the body has no 2 there"),
        ("https://h/{items.-1}", BODY, "{items.-1}: the body has no -1 there"),
        ("https://h/{items}", BODY, "the body has a list there"),
        ("https://h/{customer}", BODY, "the body has an object there"),
        ("https://h/{customer.none}", BODY, "the body has null there"),
        ("https://h/{a}", None, "the body has no a there"),
        ("https://h/{a}", "a", "the body has no a there"),
        ("https://h/x/{a}", {"a": ".."}, "{a}: the body has '..' there, which would change the path"),
        ("https://h/x/{a}", {"a": "x/../../admin"}, "{a}: the body has a / there, which would change the path"),
        ("https://h/x/{a}", {"a": "..\\admin"}, "{a}: the body has a \\ there, which would change the path"),
        ("https://h/x-{a}", {"a": "/"}, "{a}: the body has a / there, which would change the path"),
        ("https://h/x/{a}/y", {"a": ""}, "{a}: the body has '' there, which would change the path"),
        ("https://h/x/%2E{a}/y", {"a": "."}, "which would change the path"),
        ("https://h/{a}{b}", {"a": ".", "b": "."}, "which would change the path"),
        ("https://h/?a={a}", {"a": "x" * 9000}, "at most 8000"),
    ],
)
def test_a_body_that_does_not_fit_is_told_with_the_reason(url: str, body: object, told: str) -> None:
    with pytest.raises(TemplateError) as caught:
        UrlTemplate.parse(url).fill(body)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("url", "at", "told"),
    [
        ("{scheme}://h/", 1, "a placeholder in scheme, host or port"),
        ("https://{host}/", 9, "a placeholder in scheme, host or port"),
        ("https://h{more}/", 10, "a placeholder in scheme, host or port"),
        ("https://h:{port}/", 11, "a placeholder in scheme, host or port"),
        ("https://h:80{port}", 13, "a placeholder in scheme, host or port"),
        ("https://{{h}}/", 9, "a placeholder in scheme, host or port"),
        ("https://h\\{a}", 11, "a placeholder in scheme, host or port"),
        ("", 1, 'write "https://host/path"'),
        ("ftp://h/", 1, 'write "https://host/path"'),
        ("//h/", 1, 'write "https://host/path"'),
        ("https:///x", 9, "there is no host"),
        ("https://h:0/", 9, "there is no host or the port is 0"),
        ("https://h:99999/", 9, "the host or the port is none"),
        ("https://[::1/", 9, "the host or the port is none"),
        ("https://u:p@h/", 9, "user and password"),
        ("https://h/a b", 12, "write %20"),
        ("https://h/\r\nx: y", 11, "write %0D"),
        ("https://h/a\\b", 12, "write %5C"),
        ("https://h/\ud800", 11, "no URL has"),
        ("https://h/%zz", 11, "write %25"),
        ("https://h/#part", 11, "never sent"),
        ("https://h/{", 11, "write {{ for the sign itself"),
        ("https://h/}", 11, "write }} for the sign itself"),
        ("https://h/{}", 11, "names a field of the body"),
        ("https://h/{a..b}", 11, "names a field of the body"),
        ("https://h/{a/b}", 11, "names a field of the body"),
        ("https://h/" + "x" * 2000, 2001, "at most 2000"),
    ],
)
def test_what_is_no_url_to_call_is_refused_with_its_place(url: str, at: int, told: str) -> None:
    with pytest.raises(SettingSyntaxError) as caught:
        UrlTemplate.parse(url)
    assert told in str(caught.value)
    assert caught.value.at == at


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(SettingSyntaxError, match="a url is text"):
        UrlTemplate.parse(5)  # type: ignore[arg-type]


def test_a_url_is_shown_without_its_query() -> None:
    url = UrlTemplate.parse("https://Shop.example:8443/{order}?token=abc")
    assert url.shown == "https://Shop.example:8443/{order}?..."
    assert url.origin == "https://shop.example:8443"
    assert url.sample == "https://Shop.example:8443/x?token=abc"
    assert not url.is_fixed
    assert UrlTemplate.parse("https://h/{{").is_fixed


def test_a_text_is_filled_as_it_is() -> None:
    assert Template.parse("{customer.id}/{order}{{").fill(BODY) == "a/b c?#&+%é/7{"
    assert not Template.parse("{order}").is_fixed
    assert Template.parse("order").is_fixed
    with pytest.raises(TemplateError):
        Template.parse("{none}").fill(BODY)
    with pytest.raises(SettingSyntaxError):
        Template.parse("{order")


values = st.text(max_size=12) | st.integers() | st.floats(allow_nan=False) | st.booleans()
dotted = st.lists(st.sampled_from([".", "..", "/", "%2e", "?", "#", "\\", "@", ":", "\0", "\n", "x", "%"]), max_size=5)


@settings(deadline=None)
@given(values | dotted.map("".join), values)
def test_no_value_leads_anywhere_else(one: object, other: object) -> None:
    template = UrlTemplate.parse("https://h:8443/a/{one}/b/x{other}?q={one}&r={other}")
    try:
        url = template.fill(json.loads(json.dumps({"one": one, "other": other})))
    except TemplateError:
        assume(False)
    found = urlsplit(url)
    assert (found.scheme, found.netloc, found.fragment) == ("https", "h:8443", "")
    _, first, filled, second, last = found.path.split("/")
    assert (first, second, last[0]) == ("a", "b", "x")
    assert unquote(filled) not in ("", ".", "..")
    assert not {"/", "\\"} & {*unquote(filled), *unquote(last)}
    assert url.isascii()
    assert url.isprintable()
    assert len(found.query.split("&")) == 2


@settings(deadline=None)
@given(st.text(max_size=30) | st.lists(st.sampled_from([*"{}/?.:@#%a ", "https://h"]), max_size=10).map("".join))
def test_whatever_is_written_is_a_url_or_refused(text: str) -> None:
    place = 0
    for written in (text, "https://h/" + text):
        try:
            UrlTemplate.parse(written)
        except SettingSyntaxError as error:
            place = max(place, error.at - len(written))
    assert place <= 1
