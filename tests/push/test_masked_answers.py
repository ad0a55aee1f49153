"""What is kept of an answer has no secrets of whoever answered."""

import json

import pytest

from tarry.push.delivery.delivery_record import make_record
from tarry.push.delivery.delivery_verdict import Delivered
from tarry.push.http.response import HttpResponse
from tarry.tasks.arguments.masking import HIDDEN, mask_json

SECRET = "hush-hush"
HEADERS = ("set-cookie", "authorization", "x-api-key", "www-authenticate", "x-token", "location", "x-session", "cookie")


@pytest.mark.parametrize("name", HEADERS)
def test_values_of_headers_that_may_be_secret_are_hidden(name: str) -> None:
    headers = ((name, SECRET), ("content-type", "text/plain"), ("x-request-id", "7"))
    record = make_record(1, 0.0, 0, HttpResponse(200, headers), Delivered("fine"))
    assert record.headers == ((name, HIDDEN), *headers[1:])


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"access_token": SECRET, "n": 1}),
        json.dumps([{"deep": {"password": {"old": SECRET}}}]),
        '{"n": 1, "api-key" : "' + SECRET + '", "rest": "cut he',
        '{"api_key": "' + SECRET,
        '{"secret": "a\\\\\\"' + SECRET + '", "x": [',
    ],
)
def test_values_of_secret_names_are_hidden_also_where_json_is_cut(text: str) -> None:
    masked = mask_json(text)
    assert SECRET not in masked
    assert HIDDEN in masked


@pytest.mark.parametrize("text", ["", "ok", '{"code": 200}', "{not json", '{"id":1,  "name": "to', "token: 7", "[1,"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert mask_json(text) == text


@pytest.mark.parametrize("part", ['{"', '"a":', "[", '{"token":"', "\\\\", " ", '{"token": {"token": '])
def test_it_is_quick_whatever_the_text(part: str) -> None:
    assert len(mask_json("{" + part * (8192 // len(part)))) > 0
