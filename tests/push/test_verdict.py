"""The verdict on each answer and each failure."""

from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.model.duration import HOUR, MINUTE, SECOND
from tarry.push.delivery.delivery_verdict import Again, Delivered, DeliveryVerdict, Disabled, Final, judge, retry_after
from tarry.push.endpoint.endpoint_settings import Endpoint
from tarry.push.endpoint.success import SuccessCodes
from tarry.push.http.failure import Failure, FailureKind
from tarry.push.http.response import HttpResponse

NOW = 1_763_765_100.0


def endpoint(**settings: Any) -> Endpoint:
    return Endpoint.parse("order.timeout", {"url": "https://shop.example/", **settings})


def verdict(answer: HttpResponse | Failure | int, **settings: Any) -> DeliveryVerdict:
    return judge(endpoint(**settings), HttpResponse(answer) if isinstance(answer, int) else answer, NOW)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 226, 299])
def test_2xx_is_delivered(status: int) -> None:
    assert isinstance(verdict(status), Delivered)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 501, 502, 503, 504, 507, 599, 600, 999])
def test_what_may_pass_is_tried_again(status: int) -> None:
    found = verdict(status)
    assert isinstance(found, Again)
    assert not found.maybe
    assert found.counted
    assert found.busy is (status in (408, 429, 502, 503, 504))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 413, 422, 451, 499])
def test_other_4xx_are_final(status: int) -> None:
    assert isinstance(verdict(status), Final)


def test_410_disables_the_endpoint() -> None:
    found = verdict(410)
    assert isinstance(found, Disabled)
    assert found.reason == "answered 410 Gone: the endpoint is disabled; enable it once it is back"


def test_410_for_one_job_says_nothing_of_the_endpoint() -> None:
    """Its order may be gone, and all others are there."""
    for url in "https://shop.example/orders/{order}", "https://shop.example/?order={order}":
        assert verdict(410, url=url) == Final("answered 410 Gone")
    assert verdict(HttpResponse(410, url="https://else.example/moved")) == Final("answered 410 Gone")


@pytest.mark.parametrize("status", [400, 401, 404, 410, 422, 301, 429, 500, 503])
def test_a_rule_that_does_not_look_at_the_status_is_content_only_with_success(status: int) -> None:
    """An error page may have all that the rule asks for."""
    body = b'{"code": 200}'
    assert verdict(HttpResponse(status, body=body), retry_when="res.code != 200") == verdict(
        HttpResponse(status, body=body)
    )
    assert isinstance(verdict(HttpResponse(status, body=b"{}"), retry_when="!has(res.code)"), Again)
    assert isinstance(verdict(HttpResponse(status, body=body), retry_when="status > 599 || res.code != 200"), Delivered)
    assert isinstance(verdict(HttpResponse(200, body=body), retry_when="res.code != 200"), Delivered)


def test_reasons_are_for_people() -> None:
    assert verdict(200) == Delivered("answered 200 OK")
    assert verdict(404) == Final("answered 404 Not Found")
    assert verdict(503) == Again("answered 503 Service Unavailable", busy=True)
    assert verdict(599) == Again("answered 599")


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("https://else.example/x?token=secret#a", "to https://else.example/x; "),
        ("/there", "to /there; "),
        ("https://user:secret@else.example/x", "to https://else.example/x; "),
        ("https://else.example/\x1b[31m", "to https://else.example/?[31m; "),
        ("https://[secret@/", "to nowhere; "),
        ("https://else.example/" + "x" * 500, "..."),
        ("", "add it to success if it is one"),
    ],
)
def test_a_redirect_that_is_not_followed_is_final_and_named(location: str, told: str) -> None:
    found = verdict(HttpResponse(302, (("location", location),)))
    assert isinstance(found, Final)
    assert found.reason.startswith("answered 302 Found, ")
    assert told in found.reason
    assert "secret" not in found.reason
    assert len(found.reason) < 400


@pytest.mark.parametrize(
    ("status", "settings", "told"),
    [
        (302, {}, "redirects are not followed so far: set the url to that, or redirects"),
        (307, {}, "redirects are not followed so far"),
        (301, {"redirects": 3}, "after it only GET and HEAD follow: set the url to that, or have it answer with 307"),
        (302, {"redirects": 3}, "after it only GET and HEAD follow: set the url to that, or have it answer with 307"),
        (300, {"redirects": 3}, "only 301, 302, 303, 307 and 308 are followed: set the url to that"),
    ],
)
def test_what_to_do_about_a_redirect_depends_on_what_is_set(status: int, settings: dict[str, Any], told: str) -> None:
    found = verdict(HttpResponse(status, (("location", "/there"),)), **settings)
    assert isinstance(found, Final)
    assert f"to /there; {told}" in found.reason


@pytest.mark.parametrize(
    ("success", "delivered"),
    [
        ("2xx", {200, 299}),
        (204, {204}),
        ([200, 204], {200, 204}),
        ("200-299", {200, 250, 299}),
        ("2xx, 304", {200, 304}),
        (["2XX", "404-410", 500], {200, 404, 410, 500}),
    ],
)
def test_what_counts_as_success_can_be_said(success: Any, delivered: set[int]) -> None:
    seen = {
        status
        for status in (200, 204, 250, 299, 304, 404, 410, 500)
        if isinstance(verdict(status, success=success), Delivered)
    }
    assert seen == {
        status for status in (200, 204, 250, 299, 304, 404, 410, 500) if status in SuccessCodes.parse(success)
    }
    assert delivered <= seen


def test_a_2xx_that_is_no_success_is_final() -> None:
    assert verdict(202, success=[200]) == Final("answered 202 Accepted")


RULE = "status == 1 || res.code != 200"


@pytest.mark.parametrize("status", [200, 302, 404, 410, 429, 500])
def test_a_rule_that_looks_at_the_status_decides_alone_on_an_answer_that_came(status: int) -> None:
    content = verdict(HttpResponse(status, body=b'{"code": 200}'), retry_when=RULE)
    assert isinstance(content, Delivered)
    assert content.reason.endswith("; the rule is content")
    again = verdict(HttpResponse(status, body=b'{"code": 1}'), retry_when=RULE)
    assert isinstance(again, Again)
    assert again.reason.endswith(f"; the rule says so: {RULE}")
    assert isinstance(verdict(HttpResponse(status), retry_when=RULE), Again)


def test_a_rule_is_not_asked_about_what_did_not_come() -> None:
    assert isinstance(verdict(Failure(FailureKind.REFUSED, "nobody listens"), retry_when="status == 1"), Again)


@pytest.mark.parametrize("why", list(FailureKind))
def test_each_failure_has_its_meaning(why: FailureKind) -> None:
    found = verdict(Failure(why, "so it was"))
    if why in (FailureKind.REQUEST, FailureKind.FORBIDDEN, FailureKind.REDIRECT):
        assert found == Final("so it was")
    else:
        assert isinstance(found, Again)
        assert found.reason == "so it was"
        assert found.counted is (why is not FailureKind.LOCAL)
        assert found.busy is (why in (FailureKind.CONNECT_TIMEOUT, FailureKind.TIMEOUT, FailureKind.UNANSWERED))


@pytest.mark.parametrize(
    "why",
    [
        FailureKind.UNANSWERED,
        FailureKind.CLOSED,
        FailureKind.MALFORMED,
        FailureKind.BROKEN,
        FailureKind.LOCAL,
        FailureKind.REDIRECT,
    ],
)
def test_what_was_sent_and_not_answered_is_said_to_be_ambiguous(why: FailureKind) -> None:
    found = verdict(Failure(why, "so it was", sent=True))
    assert isinstance(found, Again | Final)
    assert found.maybe
    assert found.reason == "so it was; maybe delivered"
    assert not isinstance(found, Again) or found.counted


def http_date(seconds: float) -> str:
    return format_datetime(datetime.fromtimestamp(seconds, UTC), usegmt=True)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("0", 0),
        ("120", 2 * MINUTE),
        (" 120 ", 2 * MINUTE),
        ("3600", HOUR),
        ("3601", HOUR),
        ("9" * 5000, HOUR),
        (http_date(NOW + 60), MINUTE),
        (http_date(NOW - 60), 0),
        (http_date(NOW + 10**6), HOUR),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("1.5", None),
        ("1, 2", None),
        ("\u0661", None),
        ("Fri, 99 Foo 9999 99:99:99 GMT", None),
        ("GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", HOUR),
    ],
)
def test_retry_after_is_read_and_capped(text: str, after: int | None) -> None:
    assert retry_after(HttpResponse(429, (("retry-after", text),)), NOW) == after
    found = verdict(HttpResponse(503, (("retry-after", text),)))
    assert isinstance(found, Again)
    assert found.after == after


def test_a_date_counts_from_the_endpoint_s_own_clock() -> None:
    wrong = NOW - 86_400
    headers = (("date", http_date(wrong)), ("retry-after", http_date(wrong + 90)))
    assert retry_after(HttpResponse(503, headers), NOW) == 90 * SECOND


def test_retry_after_is_obeyed_with_a_rule_too_and_up_to_the_cap_that_is_given() -> None:
    answer = HttpResponse(200, (("retry-after", "120"),), b'{"code": 1}')
    found = judge(endpoint(retry_when=RULE), answer, NOW, cap=MINUTE)
    assert isinstance(found, Again)
    assert found.after == MINUTE


statuses = st.integers(100, 999)
headers = st.lists(
    st.tuples(st.sampled_from(["retry-after", "location", "date", "x"]), st.text(max_size=30)), max_size=4
).map(tuple)
answers: st.SearchStrategy[HttpResponse | Failure] = st.builds(
    HttpResponse, statuses, headers, st.binary(max_size=30)
) | st.builds(Failure, st.sampled_from(list(FailureKind)), st.text(max_size=5), st.booleans())
ENDPOINTS = [
    endpoint(),
    endpoint(retry_when=RULE),
    endpoint(retry_when="{res.code}!=200"),
    endpoint(success=[200, "4xx"]),
]


@settings(deadline=None)
@given(st.sampled_from(ENDPOINTS), answers)
def test_every_answer_has_a_meaning(terms: Endpoint, came: HttpResponse | Failure) -> None:
    found = judge(terms, came, NOW)
    assert isinstance(found, Delivered | Again | Final | Disabled)
    if isinstance(found, Again):
        assert found.after is None or 0 <= found.after <= HOUR
        assert found.counted or not found.maybe


CUT = "the answer was cut off in its body"


def test_a_status_counts_although_the_body_broke_off() -> None:
    def broken(status: int, **settings: Any) -> DeliveryVerdict:
        return verdict(Failure(FailureKind.BROKEN, "the body broke off", True, status=status), **settings)

    assert broken(200) == Delivered(f"answered 200 OK; {CUT}")
    assert broken(404) == Final(f"answered 404 Not Found; {CUT}")
    assert broken(503) == Again(f"answered 503 Service Unavailable; {CUT}", busy=True)
    assert isinstance(broken(410), Disabled)
    assert broken(303, redirects=1) == Again("the body broke off; maybe delivered", maybe=True), "not the last answer"
    assert broken(200, retry_when="res.code != 200") == Again("the body broke off; maybe delivered", maybe=True)
