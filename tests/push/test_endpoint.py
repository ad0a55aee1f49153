"""The settings of an HTTP task: how they are read, the errors, and that secrets stay secret."""

import base64
import json
import subprocess
import sys
import tomllib
import traceback
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.errors import ConfigError
from tarry.model.duration import DAY, MINUTE
from tarry.push.endpoint.endpoint_settings import Endpoint, EndpointError
from tarry.push.endpoint.fields import FIELDS
from tarry.push.rule import cel

URL = "https://shop.example/orders/{order}"
HMAC = "whsec_" + base64.b64encode(b"k" * 24).decode()
ED25519 = "whsk_" + base64.b64encode(b"k" * 32).decode()
RAW = "correct horse battery staple"

FULL = f"""
url = "https://shop.example/orders/{{order}}?token=sesame"
method = "put"
headers = {{ Authorization = "Bearer hush", X-Key = "env:TARRY_TEST_KEY" }}
secrets = ["{HMAC}", "{ED25519}", "{RAW}", "env:ORDER_SECRET", "file:/run/secrets/order"]
delay = "10m"
timeout = "20s"
connect_timeout = 2.5
queue = "hooks"
priority = -5
retry_when = "res.code != 200"
schedule = ["1m", "3m", "5m", "7m"]
max_attempts = 4
until = "3d"
concurrency = 5
rate = "10/s"
alert = ["ops@example.org", "https://hooks.example/services/T00/hush?x=hush"]
redirects = 2
order = "{{customer.id}}"
on_dead = "hold"
enabled = false
"""


def parse(**settings: Any) -> Endpoint:
    return Endpoint.parse("order.timeout", {"url": URL, **settings})


def parse_error(settings: Any, name: Any = "order.timeout") -> EndpointError:
    with pytest.raises(EndpointError) as caught:
        Endpoint.parse(name, settings)
    assert "\n" not in str(caught.value)
    return caught.value


def test_all_settings_are_read() -> None:
    endpoint = Endpoint.parse("order.timeout", tomllib.loads(FULL))
    assert endpoint.url.fill({"order": "a b"}) == "https://shop.example/orders/a%20b?token=sesame"
    assert (endpoint.method, endpoint.queue, endpoint.priority) == ("PUT", "hooks", -5)
    assert [name for name, _ in endpoint.headers] == ["authorization", "x-key"]
    assert [secret.literal for secret in endpoint.secrets] == [True, True, True, False, False]
    assert endpoint.secrets[0].value() == HMAC
    assert (endpoint.delay, endpoint.timeout, endpoint.connect_timeout) == (10 * MINUTE, 20.0, 2.5)
    assert endpoint.retry_when is not None
    assert endpoint.retry_when.text == "res.code != 200"
    assert (endpoint.schedule.attempts, endpoint.schedule.until) == (4, 3 * DAY)
    assert endpoint.schedule.delay(3, age=3 * DAY - 5 * MINUTE) == 5 * MINUTE
    assert endpoint.schedule.delay(3, age=3 * DAY) is None
    assert (endpoint.concurrency, endpoint.rate, endpoint.redirects) == (5, "10/s", 2)
    assert endpoint.alert == ("ops@example.org", "https://hooks.example/services/T00/hush?x=hush")
    assert endpoint.order is not None
    assert endpoint.order.fill({"customer": {"id": 9}}) == "9"
    assert endpoint.on_dead == "hold"
    assert not endpoint.enabled
    assert endpoint.sends_body


def test_a_url_is_enough() -> None:
    endpoint = parse()
    assert (endpoint.method, endpoint.queue, endpoint.priority, endpoint.delay) == ("POST", "default", 0, 0)
    assert (endpoint.timeout, endpoint.connect_timeout, endpoint.redirects) == (30.0, 5.0, 0)
    assert (endpoint.retry_when, endpoint.concurrency, endpoint.rate, endpoint.order) == (None, None, None, None)
    assert endpoint.schedule.attempts == 10
    assert endpoint.enabled
    assert 204 in endpoint.success
    assert not parse(method="GET").sends_body
    assert parse(timeout="1s").connect_timeout == 1.0


def test_values_of_headers_are_read_when_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = parse(headers={"Authorization": "Bearer hush", "x-key": "env:TARRY_TEST_KEY"})
    with pytest.raises(ConfigError, match="TARRY_TEST_KEY is not set"):
        endpoint.header_pairs()
    monkeypatch.setenv("TARRY_TEST_KEY", "k1")
    assert endpoint.header_pairs() == (("authorization", "Bearer hush"), ("x-key", "k1"))


def test_what_the_store_keeps_makes_the_same_endpoint() -> None:
    endpoint = Endpoint.parse("order.timeout", tomllib.loads(FULL))
    kept = msgspec.json.encode(endpoint.settings)
    for checked in (True, False):
        again = Endpoint.parse("order.timeout", msgspec.json.decode(kept), checked)
        assert again == endpoint
        assert hash(again) == hash(endpoint)
        assert again.retry_when == endpoint.retry_when
    assert parse() != parse(delay=1)
    assert parse() != "order.timeout"


def test_null_in_json_is_as_if_it_were_not_there() -> None:
    assert parse(delay=None, schedule=None, secret=None, retry_when=None) == parse()


def test_nobody_else_holds_the_settings() -> None:
    settings = {"url": URL, "schedule": ["1m"]}
    endpoint = Endpoint.parse("a", settings)
    settings["schedule"] = []
    assert endpoint.settings == {"url": URL, "schedule": ["1m"]}


def test_secrets_are_not_shown() -> None:
    endpoint = Endpoint.parse("order.timeout", tomllib.loads(FULL))
    shown = json.dumps(endpoint.display_settings())
    everything = f"{endpoint!r} {endpoint} {[endpoint]} {endpoint.headers!r} {endpoint.secrets!r} {shown}"
    for hidden in (HMAC, ED25519, RAW, "hush", "sesame"):
        assert hidden not in everything
    assert repr(endpoint) == "<Endpoint order.timeout PUT https://shop.example/orders/{order}?...>"
    assert endpoint.display_settings()["secrets"] == [
        "***",
        "***",
        "***",
        "env:ORDER_SECRET",
        "file:/run/secrets/order",
    ]
    assert endpoint.display_settings()["headers"] == {"Authorization": "***", "X-Key": "env:TARRY_TEST_KEY"}
    assert endpoint.display_settings()["alert"] == ["ops@example.org", "https://hooks.example/..."]
    assert parse(secret=RAW).display_settings() == {"url": URL, "secret": "***"}
    assert "rich" not in everything
    assert list(endpoint.__rich_repr__()) == [repr(endpoint)]


@pytest.mark.parametrize(
    "settings",
    [
        {"secret": "hushhush"},
        {"secret": "whsec_hushhush!"},
        {"secret": "whsk_hushhush"},
        {"secrets": [HMAC, "hushhush"]},
        {"secrets": {"a": "hushhush-hushhush"}},
        {"secret": "env:hushhush hush"},
        {"headers": {"a": "hush\r\nb: c"}},
        {"headers": {"a": "hush\u00e9"}},
        {"headers": {"bad name": "hush"}},
        {"headers": {"a": ["hush"]}},
        {"headers": "hush"},
        {"url": "https://user:hush@h/"},
        {"alert": ["https://hush@/{a}"]},
    ],
)
def test_errors_do_not_tell_secrets(settings: dict[str, Any]) -> None:
    error = parse_error({"url": URL} | settings)
    assert "hush" not in str(error)
    assert "hush" not in "".join(traceback.format_exception(error))
    assert error.__suppress_context__


def test_an_error_names_field_position_and_way_out() -> None:
    error = parse_error({"url": URL, "retry_when": "res.code != "})
    assert str(error) == (
        'tasks."order.timeout".retry_when, at 13: it ends too early; write a comparison, as in res.code != 200'
    )
    assert error.field == "retry_when"
    assert str(parse_error({"url": "https://h/{"})) == (
        'tasks."order.timeout".url, at 11: a { without its other half; write {{ for the sign itself'
    )
    assert str(parse_error({"url": URL, "retry_wen": "x"})) == (
        'unknown setting tasks."order.timeout".retry_wen; did you mean retry_when?'
    )
    assert str(parse_error({"url": URL, "zzz": 1}, "simple")).startswith(
        "unknown setting tasks.simple.zzz; known: url, method"
    )


@pytest.mark.parametrize(
    ("settings", "field", "told"),
    [
        ({"url": None}, "url", "it is missing"),
        ({"url": 5}, "url", "a url is text"),
        ({"url": "ftp://h/"}, "url, at 1", 'write "https://host/path"'),
        ({"url": "https://{host}/"}, "url, at 9", "a body must not choose who is called"),
        ({"url": "https://-h-/"}, "url", "no name of one"),
        ({"method": "TRACE"}, "method", "write one of POST, GET"),
        ({"method": 5}, "method", "write one of POST, GET"),
        ({"headers": {"Host": "x"}}, "headers", "the connection's own"),
        ({"headers": {"content-length": "1"}}, "headers", "the connection's own"),
        ({"headers": {"webhook-id": "x"}}, "headers", "set by tarry itself"),
        ({"headers": {"a": "1", "A": "2"}}, "headers", "twice"),
        ({"headers": {"a": 1}}, "headers", "the value of a is no text"),
        ({"headers": ["a"]}, "headers", "no table of headers"),
        ({"headers": {"a": "env:"}}, "headers", 'write "env:NAME"'),
        ({"secret": "short"}, "secret", "16 or more"),
        ({"secret": 5}, "secret", "no text"),
        ({"secret": "file:relative"}, "secret", "with all of the path"),
        ({"secret": "env:"}, "secret", 'write "env:NAME"'),
        ({"secret": RAW, "secrets": [RAW]}, "secrets", "it stands beside secret"),
        ({"secrets": [RAW] * 11}, "secrets", "11 secrets; at most 10"),
        ({"delay": "soon"}, "delay", "is no duration"),
        ({"delay": -1}, "delay", "negative"),
        ({"delay": float("nan")}, "delay", "no duration"),
        ({"timeout": 0}, "timeout", "it is 0"),
        ({"timeout": True}, "timeout", "is no duration"),
        ({"timeout": "1s", "connect_timeout": "2s"}, "connect_timeout", "longer than the timeout of 1 s"),
        ({"queue": ""}, "queue", "no name"),
        ({"queue": "a\nb"}, "queue", "no name"),
        ({"queue": "x" * 201}, "queue", "no name"),
        ({"priority": "high"}, "priority", "'high' is no whole number"),
        ({"priority": 2**40 + 1}, "priority", "is no whole number"),
        ({"priority": True}, "priority", "True is no whole number"),
        ({"retry_when": ""}, "retry_when", "a rule is text"),
        ({"retry_when": ["x"]}, "retry_when", "a rule is text"),
        ({"retry_when": "{res.code}=1"}, "retry_when, at 11", "write =="),
        ({"retry_when": "status > 1", "success": "2xx"}, "success", "it stands beside retry_when"),
        ({"success": "fine"}, "success", "is no status"),
        ({"success": []}, "success", "no status"),
        ({"success": [200, 99]}, "success", "99 is no status from 200 to 599"),
        ({"success": "299-200"}, "success", "is no status"),
        ({"success": True}, "success", "is no status"),
        ({"schedule": "soon"}, "schedule", "is no schedule"),
        ({"schedule": ["1m", "x"]}, "schedule", "delay 2"),
        ({"max_attempts": 0}, "max_attempts", '"forever"'),
        ({"until": "x"}, "until", "is no duration"),
        ({"concurrency": 0}, "concurrency", "from 1"),
        ({"rate": "fast"}, "rate", "100/s"),
        ({"rate": 5}, "rate", "100/s"),
        ({"alert": "nobody"}, "alert", "number 1 is nobody"),
        ({"alert": ["a@b.c", "x@y@z"]}, "alert", "number 2 is nobody"),
        ({"alert": ["a@b\r\nBcc: c@d"]}, "alert", "number 1 is nobody"),
        ({"alert": ["https://h/{a}"]}, "alert", "number 1 is nobody"),
        ({"alert": ["a@b.c"] * 21}, "alert", "21 of them"),
        ({"redirects": 11}, "redirects", "from 0 to 10"),
        ({"order": "same"}, "order", "it is the same for all jobs"),
        ({"order": "{a"}, "order, at 1", "without its other half"),
        ({"order": 5}, "order", "no text"),
        ({"order": "{a}", "on_dead": "wait"}, "on_dead", 'neither "skip" nor "hold"'),
        ({"on_dead": "hold"}, "on_dead", "it stands without order"),
        ({"enabled": "yes"}, "enabled", "neither true nor false"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], field: str, told: str) -> None:
    error = parse_error({"url": URL} | settings)
    assert str(error).startswith(f'tasks."order.timeout".{field}: ')
    assert told in str(error)
    assert error.field == field.partition(",")[0]


@pytest.mark.parametrize("settings", [None, [], "url", 5])
def test_what_is_no_table_is_refused(settings: Any) -> None:
    assert "no table of settings" in str(parse_error(settings))


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201, 5, None])
def test_what_is_no_name_is_refused(name: Any) -> None:
    assert "no name; write a text of 1 to 200 characters" in str(parse_error({"url": URL}, name))


def test_who_only_puts_jobs_needs_none_of_the_extra() -> None:
    code = (
        "import sys\n"
        "from tarry.push.endpoint.endpoint_settings import Endpoint\n"
        f"Endpoint.parse('a', {{'url': {URL!r}, 'retry_when': 'res.code != 200', 'secret': {RAW!r},"
        " 'headers': {'a': 'b'}}, checked=False)\n"
        "extra = ('pyreqwest', 'httptools', 'cel_expr_python', 'cryptography')\n"
        "print([name for name in extra if name in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("missing", ["pyreqwest.http", "cel_expr_python"])
def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for name in [name for name in sys.modules if name.startswith(("tarry.push.http.target", missing))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("tarry.push.http.target", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    cel._environment.cache_clear()
    cel._compile.cache_clear()
    assert "pip install 'tarry[push]'" in str(parse_error({"url": URL, "retry_when": "status == 299"}))


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([URL, "10m", "2xx", RAW]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), anything, max_size=5), st.booleans())
def test_whatever_is_written_is_an_endpoint_or_refused_in_a_line(settings: dict[str, Any], checked: bool) -> None:
    told = ""
    try:
        endpoint = Endpoint.parse("a", {"url": URL} | settings, checked)
    except EndpointError as error:
        told = str(error)
    else:
        assert Endpoint.parse("a", endpoint.settings, checked) == endpoint
        json.dumps(endpoint.display_settings())
    assert "\n" not in told
    assert len(told) < 1000
