"""Retry rules in CEL: their variables and results, what is refused, and that no answer breaks them."""

import gzip
import json
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.push.http.response import MOST_BODY, HttpResponse
from tarry.push.rule.cel import MOST_LOOPED, MOST_NESTED, MOST_TEXT, RetryCondition, RuleResult
from tarry.push.rule.rule_errors import SettingSyntaxError


def evaluate(rule: str, body: bytes = b"", status: int = 200, **more: object) -> RuleResult:
    return RetryCondition.parse(rule).evaluate(msgspec.convert({"status": status, "body": body, **more}, HttpResponse))


def parse_error(rule: str) -> tuple[str, int]:
    with pytest.raises(SettingSyntaxError) as caught:
        RetryCondition.parse(rule)
    return str(caught.value), caught.value.at


@pytest.mark.parametrize(
    ("rule", "body", "again"),
    [
        ("res.code != 200", b'{"code": 200}', False),
        ("res.code != 200", b'{"code": 200.0}', False),
        ("res.code == 200", b'{"code": 200.0}', True),
        ("res.code != 200", b'{"code": "200"}', True),
        ("res.code != 200", b'{"code": null}', True),
        ("res.code != 200 || res.data.status == 2", b'{"code": 200, "data": {"status": 2}}', True),
        ("res.code != 200 || res.data.status == 2", b'{"code": 200, "data": {"status": 1}}', False),
        ("res.items[0].state == 'failed'", b'{"items": [{"state": "failed"}]}', True),
        ("res.items.exists(i, i.state == 'failed')", b'{"items": [{"state": "ok"}, {"state": "failed"}]}', True),
        ("res.items.all(i, i.n + 1 < 5)", b'{"items": [{"n": 1}, {"n": 9}]}', False),
        ("has(res.error)", b'{"error": "x"}', True),
        ("has(res.error)", b"{}", False),
        ("size(res) == 0", b"[]", True),
        ("res == null", b"null", True),
        ("res", b"true", None),
        ("res == true", b"true", True),
        ('res["a-b"] == 1', b'{"a-b": 1}', True),
        ("body.contains('busy')", b"so busy", True),
        ("body.matches('^(a+)+$')", b"a" * 60_000 + b"b", False),
        ("matches(body, '[0-9]{4}-[0-9]{2}-[0-9]{2}')", b"since 2026-11-21", True),
        ("body.matches('[0-9a-f]{8}(-[]0-9a-f]{4}){3}-[0-9a-f]{12}')", b"019ab0de-0000-7000-8000-000000000000", True),
        ("res.code != 200", b'\xef\xbb\xbf{"code": 200}', False),
        ("res.name == 'Zo\u00eb \U0001f600'", '{"name": "Zo\u00eb \U0001f600"}'.encode(), True),
        ("res.code\n != \n200", b'{"code": 200}', False),
    ],
)
def test_a_rule_sees_the_answer(rule: str, body: bytes, again: bool | None) -> None:
    if again is None:
        assert "not true or false" in parse_error(rule)[0]
    else:
        assert evaluate(rule, body).again is again


def test_a_rule_sees_status_headers_and_time() -> None:
    assert evaluate("status >= 500", status=503).again
    assert not evaluate("status >= 500", status=200).again
    headers = [["x-state", "a"], ["X-State", "b"], ["other", "c"]]
    assert evaluate("headers['x-state'] == 'a, b' && !('none' in headers)", headers=headers).again
    assert evaluate("elapsed > 1.0", elapsed=1.5).again
    assert not evaluate("elapsed > 1.0", elapsed=0.5).again


def test_a_rule_that_says_so_is_quoted_in_the_reason() -> None:
    assert evaluate("status != 200", status=201) == RuleResult(True, "the rule says so: status != 200")
    assert evaluate("status\n  != 200", status=201).reason == "the rule says so: status != 200"
    assert evaluate("status != 200") == RuleResult(False, "")
    assert len(evaluate("status != 200 " + "&& status > 0 " * 60, status=201).reason) < 200


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the answer is empty"),
        (b" \n ", "the answer is empty"),
        (b"<html>", "the answer is no JSON"),
        (b'{"code": 200', "the answer is no JSON"),
        (b'{"code": "\xff"}', "the answer is no JSON"),
        (b'{"code": "\\ud800"}', "the answer is no JSON"),
        (b'{"code": NaN}', "the answer is no JSON"),
        (b'{"code": 1e999}', "the answer is no JSON"),
        (b"9" * 60_000, "the answer is no JSON"),
        (b"[" * 60_000, "the answer is no JSON"),
        (b"[" * 900 + b"]" * 900, "the answer is no JSON"),
        (b'{"a":' * 200 + b"1" + b"}" * 200, "the answer is no JSON"),
        (b"{}", 'the answer has no "code", which the rule needs'),
        (b"[]", "the rule cannot be asked"),
        (b"null", "the rule cannot be asked"),
        (b"7", "the rule cannot be asked"),
    ],
)
def test_an_answer_that_the_rule_cannot_be_asked_about_is_asked_for_again_with_the_reason(
    body: bytes, reason: str
) -> None:
    found = evaluate("res.code != 200", body)
    assert found.again
    assert found.reason.startswith(reason)
    assert "\n" not in found.reason


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate, gzip"])
def test_an_answer_that_is_encoded_is_told_as_that(coding: str) -> None:
    answer = HttpResponse(200, (("content-encoding", coding),), body=gzip.compress(b'{"code": 200}'))
    found = RetryCondition.parse("res.code != 200").evaluate(answer)
    assert found.again
    assert found.reason.startswith(f"the answer is encoded as '{coding}', not plain JSON")


def test_a_rule_that_does_not_need_the_json_does_without() -> None:
    assert not evaluate("status == 204 ? false : res.code != 200", status=204).again
    assert not evaluate("status != 204 && res.code != 200", status=204).again
    assert not evaluate("status != 200", b"<html>").again
    assert evaluate("status == 204 ? false : res.code != 200").reason.startswith("the answer is empty")


def test_a_body_that_was_cut_is_not_read_as_json() -> None:
    found = evaluate("res.code != 200", b"1" * 100, cut=True)
    assert found.reason.startswith("the answer is longer than the 100 bytes that are read of it")
    assert not evaluate("!body.startsWith('1')", b"1" * 100, cut=True).again


def test_an_answer_may_be_nested_up_to_a_bound() -> None:
    assert not evaluate("res == 1", b"[" * MOST_NESTED + b"]" * MOST_NESTED).again
    assert evaluate("res == 1", b"[" * (MOST_NESTED + 1) + b"]" * (MOST_NESTED + 1)).reason.startswith(
        "the answer is no JSON"
    )
    assert not evaluate("res == 1", b'"' + b"[{" * MOST_NESTED + b'"').again, "brackets of a text do not count"
    assert not evaluate("res == 1", b"[" + b"[]," * MOST_NESTED + b"[]]").again


def test_numbers_beyond_64_bits_and_other_oddities_elsewhere_do_no_harm() -> None:
    assert not evaluate("res.code != 200", b'{"id": 123456789012345678901234567890, "code": 200}').again
    assert evaluate("res.id > 1e20", b'{"id": 123456789012345678901234567890}').again
    assert evaluate("res.id == -9223372036854775808", b'{"id": -9223372036854775808}').again
    assert not evaluate("res.code != 200", b'{"code": 1, "code": 200}').again, "the last of two keys counts"
    assert not evaluate("res.a == 'x'", b'{"a": "x\\u0000y"}').again, "C would end the text there"
    assert evaluate("res['k\ufffd'] == 1", b'{"k\\u0000": 1, "n": [null, true]}').again
    assert not evaluate("body == 'x'", b"x\0y").again
    assert evaluate("body == '\ufffd'", b"\xff").again


@pytest.mark.parametrize(
    ("rule", "at", "told"),
    [
        ("", 0, "a rule is text"),
        ("   ", 0, "a rule is text"),
        ("res.code != ", 13, "it ends too early"),
        ("stat == 200", 1, "there is no stat; did you mean status?"),
        ("status == 200 && zzz", 18, "there is no zzz; known: res, status"),
        ("res.code =! 200", 10, "token recognition error"),
        ("status == 200\n  && zzz > 1", 20, "there is no zzz"),
        ('status == "200"', 8, "numbers are written without quotes"),
        ("elapsed > 1", 9, "whole seconds are written 2.0"),
        ("res.code", 0, "it gives what the answer has there, not true or false"),
        ("status", 0, "it gives a value (int), not true or false"),
        ("x" * (MOST_TEXT + 1), MOST_TEXT + 1, "at most 1000"),
        ("(" * 60 + "true" + ")" * 60, 0, "nested too deep"),
        ("res" + ".a" * 100 + " == 1", 0, "nested too deep"),
        ("status == 1\0", 12, "a character that no text has"),
        ("body == '\ud800'", 10, "a character that no text has"),
        ("nothing(res)", 8, "there is no nothing"),
        ("res.map(x, x).size() > 1", 0, "map, filter and adding inside of a loop"),
        ("res.filter(x, x > 1).size() > 1", 0, "map, filter and adding inside of a loop"),
        ("res.all(x, x + x > 1)", 0, "map, filter and adding inside of a loop"),
        ("res.all(x, body.matches(x))", 0, "matches inside of a loop"),
        ("res.all(x, [{'a': string(x)}] == [])", 0, "string inside of a loop"),
        ("res.all(x, x.all(y, y.all(z, z == 1)))", 0, "3 loops inside each other; at most 2"),
        ("+".join(["body"] * 12) + " == ''", 0, "more than 10 additions"),
        ("body.matches(res.pattern)", 0, "matches takes a pattern that stands there"),
        ("matches(body, res.pattern)", 0, "matches takes a pattern that stands there"),
        ("body.matches('(.{0,30}){30}x|.{9}')", 0, "its patterns can take too much"),
        ("body.matches('(a{100}){20}')", 0, "its patterns can take too much"),
        (r"body.matches('(\\p{L}{0,6}[^\\PL]?){3}')", 0, "its patterns can take too much"),
        ("body.matches('(')", 0, "invalid regular expression: missing ): (; patterns are RE2's"),
        ("body.matches('a{')  || body.matches('[z-a]')", 0, "patterns are RE2's"),
        ("body.matches('))(({9}')", 0, "patterns are RE2's"),
        ("body.matches('a{99}') || body.matches('(bc{2}){50}') || body.matches('d{,99}')", 0, "its patterns can take"),
    ],
)
def test_what_is_no_rule_is_refused_with_its_place(rule: str, at: int, told: str) -> None:
    message, place = parse_error(rule)
    assert told in message
    assert "\n" not in message
    assert place == at


def test_what_is_no_text_is_refused() -> None:
    for wrong in (None, 5, ["res.code != 200"]):
        with pytest.raises(SettingSyntaxError, match="a rule is text"):
            RetryCondition.parse(wrong)  # type: ignore[arg-type]


def test_rules_of_the_same_text_are_equal_and_show_it() -> None:
    assert RetryCondition.parse("status > 1") == RetryCondition("status > 1")
    assert RetryCondition.parse("status > 1") != RetryCondition("status > 2")
    assert RetryCondition.parse("status > 1").cel == "status > 1"


ONES = b"[" + b",".join([b"1"] * 8_000) + b"]"


@pytest.mark.parametrize(
    ("rule", "most"),
    [
        (f"res.all(x, {'&&'.join(['x==1'] * 40)})", ONES),
        (f"res.all(x, !(x in [{','.join('2' * 60)}]))", ONES),
        (f"[0].all(z, res.all(x, {'&&'.join(['x==1'] * 40)}))", ONES),
        (f"res.all(x, {'&&'.join(['x==x'] * 40)})", json.dumps([{f"k{n}": n for n in range(1_200)}]).encode()),
        (f"res.all(x, {'&&'.join(['!x.contains(`aab`)'] * 30)})".replace("`", "'"), b'["' + b"a" * 16_000 + b'"]'),
        ("&&".join(["res==res"] * 95), json.dumps({f"k{n}": n for n in range(4_300)}).encode()),
        ("||".join(["0 in res"] * 95), b"[" + b",".join([b"1"] * 32_000) + b"]"),
    ],
)
def test_the_worst_answer_takes_no_long_time(rule: str, most: bytes) -> None:
    """Nothing else is done meanwhile, since it is done on the event loop."""
    assert len(most) <= (MOST_LOOPED if ".all(" in rule else MOST_BODY)
    assert measure(rule, most) < 1


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("res.all(x, !(0 in res))", "in inside of a loop can take too long; write the list there"),
        ("res.all(x, !(res in x.l))", "in inside of a loop"),
        ("res.all(x, res.l == res.m)", "a comparison inside of a loop can take too long; compare with a number"),
        ("res.all(x, x == res)", "a comparison inside of a loop"),
        ("res.all(x, !body.contains('aaaaaaab'))", "contains inside of a loop can take too long"),
        ("res.all(x, !body.endsWith(body))", "endsWith inside of a loop"),
        ("res.all(x, size(body) > 1)", "size inside of a loop"),
        ("[body, body].all(b, !b.contains('aaaaaaab'))", "contains inside of a loop"),
        ("[body].all(b, res.all(x, !b.contains('aaaaaaab')))", "contains inside of a loop"),
        ("[1].all(body, true) && res.all(x, !body.contains('aaaaaaab'))", "contains inside of a loop"),
        ("res.all(body, [1, 2].all(x, !body.contains('aaaaaaab')))", "contains inside of a loop"),
        ("res.all(x, x.all(y, x == y))", "a comparison inside of a loop"),
        (f"res.all(x, {'&&'.join(['x == 1'] * 90)})", "what its loops do can take too long"),
        (f"res.all(x, x in [{','.join(['1'] * 200)}])", "what its loops do can take too long"),
    ],
)
def test_what_would_go_through_the_answer_in_each_round_of_a_loop_is_refused(rule: str, told: str) -> None:
    assert told in parse_error(rule)[0]


@pytest.mark.parametrize(
    "rule",
    [
        "res.items.exists(i, i.state != 'done')",
        "res.items.exists(i, i.name.contains('busy') && size(i.name) > 3)",
        "res.all(x, x.a != x.b || 't' in x.tags)",
        "res.a.exists(x, x.b.exists(y, y.c == 'q' && y.d in [1, 2, 3]))",
        "res.exists(k, res[k] == 'busy') || headers.exists(h, h.startsWith('x-'))",
        "res.a.exists_one(x, has(x.c) && x.c[0].d == 1)",
    ],
)
def test_loops_that_each_look_at_their_own_part_are_rules(rule: str) -> None:
    assert RetryCondition.parse(rule).text == rule


@pytest.mark.parametrize(
    "pattern",
    ["(.{0,16}){16}x", "a?" * 140 + "z", ".*a.{99}z", "[ab]*a[ab]{250}z", "(.*)*a" * 40 + "z", "((.{0,6}){6}){6}z"],
)
def test_the_worst_pattern_takes_no_long_time(pattern: str) -> None:
    assert measure(f"body.matches('{pattern}')", bytes(b"ab"[n * n % 7 % 2] for n in range(MOST_BODY))) < 5


def measure(rule: str, body: bytes) -> float:
    parsed, answer = RetryCondition.parse(rule), HttpResponse(200, body=body)
    began = time.process_time()
    parsed.evaluate(answer)
    return time.process_time() - began


def test_a_rule_with_a_loop_reads_no_large_answer() -> None:
    body = b"[" + b"1," * MOST_LOOPED + b"1]"
    assert evaluate("res.all(x, x == 1)", body).reason == (
        f"the answer has {len(body)} bytes; rules with a loop read at most {MOST_LOOPED}"
    )
    assert not evaluate("res.size() < 10", body).again


def test_a_loop_over_too_much_is_asked_again_with_the_reason() -> None:
    found = evaluate("res.all(x, res.all(y, y == 1))", json.dumps([1] * 5_000).encode())
    assert found.again
    assert "budget" in found.reason


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["code", "data", "a"]), inner, max_size=3)
    ),
    max_leaves=8,
)
bodies = st.binary(max_size=40) | values.map(lambda value: json.dumps(value).encode())
texts = st.text(max_size=30) | st.lists(
    st.sampled_from(
        [
            "res",
            ".code",
            "status",
            "body",
            "==",
            "!=",
            "&&",
            "||",
            "!",
            "(",
            ")",
            "200",
            "'x'",
            " ",
            "[0]",
            "true",
            "{",
            "}",
        ]
    ),
    max_size=10,
).map("".join)

RULES = [
    RetryCondition.parse(text)
    for text in (
        "res.code != 200 || res.data.a == 2",
        "res[0] == 1 || res.size() > 2 && body != ''",
        "res.all(x, x.code == 1) || res.exists(k, k == 'a')",
        "{res.code}!=200 && {res.data.a}=='failed' || {res.a.0} > 5 || !{res.data}",
    )
]


@given(bodies, st.sampled_from(RULES), st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2))
@settings(deadline=None)
def test_no_answer_breaks_a_rule(body: bytes, rule: RetryCondition, headers: dict[str, str]) -> None:
    found = rule.evaluate(HttpResponse(200, tuple(headers.items()), body))
    assert bool(found.reason) is found.again
    assert found.reason.isascii() or found.reason.encode()


@given(texts)
@settings(deadline=None)
def test_whatever_is_written_is_a_rule_or_refused(text: str) -> None:
    place, told = 0, "a rule"
    try:
        RetryCondition.parse(text).evaluate(HttpResponse(200))
    except SettingSyntaxError as error:
        place, told = error.at, str(error)
    assert 0 <= place <= len(text) + 1
    assert told
