"""The request of a job, of which a part is made once; and the record of its attempt, as it is stored."""

import json
from pathlib import Path

import pytest

from tarry.errors import ConfigError
from tarry.model.job import Job
from tarry.push.delivery.delivery_record import AttemptRecord, encode_record
from tarry.push.delivery.request_builder import RequestBuilder
from tarry.push.endpoint.endpoint_settings import Endpoint
from tarry.store.rules.ids import uuid7

NOW = 1_763_765_100_000_000


def builder(**settings: object) -> RequestBuilder:
    return RequestBuilder(Endpoint.parse("hook", {"url": "https://hooks.example/order"} | settings))


def headers(requests: RequestBuilder, job: Job) -> dict[str, str]:
    return dict(requests.build(job, {}, NOW, NOW).headers)


def test_a_secret_that_changes_holds_for_the_next_request(tmp_path: Path) -> None:
    secret, token = tmp_path / "secret", tmp_path / "token"
    requests = builder(secret=f"file:{secret}", headers={"authorization": f"file:{token}"})
    job = Job(uuid7(), "hook", b"{}")
    with pytest.raises(ConfigError):
        headers(requests, job)
    secret.write_text("the first of two secrets")
    token.write_text("one")
    before = headers(requests, job)
    assert headers(requests, job) == before
    secret.write_text("the other of the two secrets")
    token.write_text("another")
    after = headers(requests, job)
    assert (before["authorization"], after["authorization"]) == ("one", "another")
    assert before["webhook-signature"] != after["webhook-signature"]


@pytest.mark.parametrize("settings", [{}, {"headers": {"content-type": "text/json"}}, {"method": "GET"}])
def test_it_has_one_content_type_if_it_has_a_body(settings: dict[str, object]) -> None:
    found = builder(**settings).build(Job(uuid7(), "hook", b"{}"), {}, NOW, NOW)
    kinds = [value for name, value in found.headers if name == "content-type"]
    assert kinds == ([] if "method" in settings else ["text/json"] if settings else ["application/json"])


def test_a_record_that_is_too_long_loses_its_headers_and_the_end_of_the_answer() -> None:
    record = AttemptRecord(1, "", "delivered", "", status=200, headers=(("a", "b"),), answer="x" * 5000)
    assert json.loads(encode_record(record, 6000))["answer"] == record.answer
    short = encode_record(record, 3000)
    assert len(short) <= 3000
    assert json.loads(short)["cut"]
    assert "headers" not in json.loads(short)
    assert 1900 < len(json.loads(short)["answer"]) <= 3000 - 1024
    assert json.loads(encode_record(record, 20)) == {"status": 200}
