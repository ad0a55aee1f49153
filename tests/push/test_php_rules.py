"""Rules of the original: what they are translated to, that they say what PHP said, and what cannot be translated."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tarry.push.http.response import HttpResponse
from tarry.push.rule import php_rules
from tarry.push.rule.cel import RetryCondition
from tarry.push.rule.php_rules import MOST_DEPTH, is_php_rule, look_up, translate
from tarry.push.rule.rule_errors import SettingSyntaxError

EMPTY = '[null, false, 0, "", "0", [], {}]'


@pytest.mark.parametrize(
    ("rule", "cel"),
    [
        ("{res.code}!=200", '!(at["code"] in [200, "200"])'),
        ("{ res.code }==200", 'at["code"] in [200, "200"]'),
        ("200 == {res . data . msg}", 'at["data.msg"] in [200, "200"]'),
        ('{res.code}=="200"', 'at["code"] in ["200", 200]'),
        ("{res.code}===200", 'at["code"] == 200'),
        ("{res.code}!==200", 'at["code"] != 200'),
        ("{res.code}<>200", '!(at["code"] in [200, "200"])'),
        ("{res.msg}=='失败'", 'at["msg"] == "失败"'),
        ("{res.ok}==TRUE", 'at["ok"] == true'),
        ("{res.ok}!=null", 'at["ok"] != null'),
        ("{res.a}=={res.b}", 'at["a"] == at["b"]'),
        ("{res.n}>5", 'double(at["n"]) > 5.0'),
        ('"5.5" <= {res.n}', '5.5 <= double(at["n"])'),
        ("{res.n}<{res.m}", 'at["n"] < at["m"]'),
        ("{res.day}<'2026-01-01'", 'at["day"] < "2026-01-01"'),
        ("{res.ok}", f'!(at["ok"] in {EMPTY})'),
        ("!{res.ok}", f'!!(at["ok"] in {EMPTY})'),
        ("({res.ok})", f'!(at["ok"] in {EMPTY})'),
        ("{res.t}==1.5e3", 'at["t"] in [1500.0, "1500"]'),
        ("{res.t}==-1", 'at["t"] in [-1, "-1"]'),
        (r"{res.t}=='it\'s'", 'at["t"] == "it\'s"'),
        (r'{res.t}=="a\n\$b\"\q"', r'at["t"] == "a\n$b\"\\q"'),
        ("{res.items.0.id}==1", 'at["items.0.id"] in [1, "1"]'),
        ("{res.a-b}==1", 'at["a-b"] in [1, "1"]'),
        ("{res.a} && true", f'!(at["a"] in {EMPTY}) && true'),
        (
            "{res.a}==1 || {res.b}===2 && !({res.c}===3)",
            '(at["a"] in [1, "1"]) || ((at["b"] == 2) && !(at["c"] == 3))',
        ),
        ("({res.a}===1 || {res.b}===2) && {res.c}", f'((at["a"] == 1) || (at["b"] == 2)) && !(at["c"] in {EMPTY})'),
    ],
)
def test_the_form_is_translated(rule: str, cel: str) -> None:
    assert is_php_rule(rule)
    assert translate(rule).cel == cel
    assert RetryCondition.parse(rule).cel == cel


@pytest.mark.parametrize(
    ("rule", "body", "again"),
    [
        # the three examples of the original's page
        ("{res.code}!=200", '{"code": 200}', False),
        ("{res.code}!=200", '{"code": 500}', True),
        ("{res.code}!=200 && {res.data.status}!=2", '{"code": 1, "data": {"status": 2}}', False),
        ("{res.code}!=200 && {res.data.status}!=2", '{"code": 1}', True),
        (
            "{res.code}==200 && {res.data.status}==2 || {res.data.msg}=='返回失败'",
            '{"data": {"msg": "返回失败"}}',
            True,
        ),
        ("{res.code}==200 && {res.data.status}==2 || {res.data.msg}=='返回失败'", '{"code": 200}', False),
        # a number and its text are equal, as in PHP
        ("{res.code}!=200", '{"code": "200"}', False),
        ("{res.code}!='200'", '{"code": 200}', False),
        ("{res.code}!==200", '{"code": "200"}', True),
        ("{res.n}>5", '{"n": "6"}', True),
        # what is not there is null, and null is nothing else
        ("{res.code}!=0", "{}", True),
        ("{res.code}==0", "{}", False),
        ("{res.a.b.c}==null", '{"a": null}', True),
        ("{res.a.b.c}==null", '{"a": "text"}', True),
        ("{res.a.b.c}==null", "[]", True),
        ("{res.code}==500 || {res.data.msg}=='failed'", '{"code": 200, "data": null}', False),
        # empty or not
        ("{res.ok}", '{"ok": "0"}', False),
        ("{res.ok}", '{"ok": 0.0}', False),
        ("{res.ok}", '{"ok": {}}', False),
        ("{res.ok}", '{"ok": "no"}', True),
        ("!{res.ok}", "{}", True),
        ("!!{res.ok}", '{"ok": 1}', True),
        # lists
        ("{res.items.1}=='b'", '{"items": ["a", "b"]}', True),
        ("{res.items.7}=='b'", '{"items": ["a", "b"]}', False),
        ("{res.items.1}=='b'", '{"items": {"1": "b"}}', True),
    ],
)
def test_a_translated_rule_says_what_it_meant(rule: str, body: str, again: bool) -> None:
    said = RetryCondition.parse(rule).evaluate(HttpResponse(200, body=body.encode()))
    assert said.again is again
    assert not again or said.reason == f"the rule says so: {rule}"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the answer is empty"),
        (b"<html>", "the answer is no JSON"),
        (b'{"n": null}', "the rule cannot be asked"),
        (b'{"n": "many"}', "the rule cannot be asked"),
    ],
)
def test_what_a_rule_cannot_be_asked_about_is_asked_for_again(body: bytes, reason: str) -> None:
    said = RetryCondition.parse("{res.n} > 5").evaluate(HttpResponse(200, body=body))
    assert said.again
    assert said.reason.startswith(reason)


@pytest.mark.parametrize(
    ("rule", "at", "told"),
    [
        ("{res.code}=200", 11, "write =="),
        ("{res.code}!=", 13, "it ends too early"),
        ("{res.code}!=200 &&", 19, "it ends too early"),
        ("({res.code}", 1, "the parenthesis has no end"),
        ("{res.code})", 11, ") cannot be translated"),
        ("{res.code} + 1 == 2", 12, "+ cannot be translated"),
        ("{res.code} == 1 and {res.b}", 17, "and cannot be translated"),
        ("{res.code} == 0x1F", 15, "0x1F cannot be translated"),
        ("strlen({res.code}) == 1", 1, "cannot be translated; write the rule in CEL"),
        ('$res["code"] == {res.a}', 1, "cannot be translated"),
        ("{res.a} == {code}", 12, "no field of the answer"),
        ('{res.a} == "x', 12, "close the quotes"),
        ('{res.a} == "$x"', 13, "write \\$ for a dollar"),
        ("{res.a..b}==1", 1, "an empty name"),
        ("{res.}==1", 1, "an empty name"),
        ("{res.a}==1==2", 11, "== has no left side"),
        ("{res.a}<1<2", 10, "< has no left side"),
        ("1==2 && {res.a}", 2, "compares two constants"),
        ("{res.a} < null", 11, "use == or !="),
        ("{res.a} == 1e999", 12, "too large"),
        ('"abc" || {res.a}', 1, "is no condition"),
        ("{res.a} && null", 12, "is no condition"),
        ("{res.a} == ({res.b} == 1)", 13, "compares fields and constants only"),
        ("!{res.a} == 1", 1, "compares fields and constants only"),
        ("&& {res.a}", 1, "stands where"),
        ("(" * 12 + "{res.a}" + ")" * 12, MOST_DEPTH + 1, "nested more than 10 deep"),
        ("!" * 11 + "{res.a}", MOST_DEPTH + 1, "nested more than 10 deep"),
    ],
)
def test_what_cannot_be_translated_is_refused_with_its_place(rule: str, at: int, told: str) -> None:
    with pytest.raises(SettingSyntaxError) as caught:
        RetryCondition.parse(rule)
    assert told in str(caught.value)
    assert caught.value.at == at


@pytest.mark.parametrize(
    "rule",
    [
        "res.code != 200",
        'body.contains("{res.code}")',
        "res.a == '{res.b}'",
        "res == {'a': 1}",
        "res == {res.a: 1}",
        "",
    ],
)
def test_cel_is_not_taken_for_the_original_form(rule: str) -> None:
    assert not is_php_rule(rule)


def test_the_deepest_that_is_taken_compiles() -> None:
    for opening, closing in (("(", ")"), ("!(", ")"), ("({res.b} || ", ")"), ("!({res.b} && {res.c} == 1 || ", ")")):
        depth = MOST_DEPTH // opening.count("!") // 2 if "!" in opening else MOST_DEPTH
        RetryCondition.parse(opening * depth + "{res.a} == 1" + closing * depth)


def test_paths_are_looked_up_in_the_answer() -> None:
    answer = {"a": {"b": [10, {"c": 1}]}, "0": "zero", "": 1}
    assert look_up(answer, ["a.b.0", "a.b.1.c", "a.b.2", "a.b.-1", "a.b.x", "0", "none", "a.b.\u0663"]) == {
        "a.b.0": 10,
        "a.b.1.c": 1,
        "a.b.2": None,
        "a.b.-1": None,
        "a.b.x": None,
        "0": "zero",
        "none": None,
        "a.b.\u0663": None,
    }


parts = st.sampled_from(
    [
        *(
            "{res.code}",
            "{res.a.b}",
            "{res.}",
            "{res",
            "}",
            "200",
            "-1.5",
            "1e5",
            "'x'",
            '"y"',
            "'",
            '"',
            "true",
            "null",
        ),
        *("==", "!=", "===", "!==", "<", ">", "<=", ">=", "&&", "||", "!", "(", ")", " ", "=", "\\", "$a", "\u00e9"),
    ]
)
written = st.text(max_size=30) | st.lists(parts, max_size=12).map("".join)
operands = st.sampled_from(["{res.code}", "{res.a.b}", "{res.items.0}"])
constants = st.sampled_from(["200", "-1.5", "'x'", '"200"', "true", "null"])
comparisons = st.builds(
    lambda left, sign, right: left + sign + right, operands, st.sampled_from(["==", "!=", "==="]), constants
)
rules = st.recursive(
    operands | comparisons,
    lambda inner: (
        st.builds(lambda a, sign, b: f"({a} {sign} {b})", inner, st.sampled_from(["&&", "||"]), inner)
        | inner.map(lambda a: f"!({a})")
    ),
    max_leaves=5,
)


@given(written)
@example("{res.a}=='\x7f'")
@example('{res.a}=="\\')
@settings(deadline=None)
def test_whatever_is_written_is_translated_or_refused(text: str) -> None:
    try:
        php_rules.translate(text)
    except SettingSyntaxError as error:
        place = error.at
    else:
        place = 0
        if is_php_rule(text):
            RetryCondition.parse(text)
    assert 0 <= place <= len(text) + 1


@given(rules, st.sampled_from(["{}", '{"code": 200}', '{"code": "x", "a": {"b": -1.5}}', '{"items": [null]}']))
@settings(deadline=None)
def test_every_rule_of_the_form_can_be_asked(rule: str, body: str) -> None:
    said = RetryCondition.parse(rule).evaluate(HttpResponse(200, body=body.encode()))
    assert said.reason in ("", f"the rule says so: {rule}") or len(rule) > 100
