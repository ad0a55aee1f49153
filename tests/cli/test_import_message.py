"""What a message of Celery's broker may hold."""

import base64
import json

import pytest

from tarry.cli.importing.celery_message import UnreadableMessage, read_message


def _message(args: str, kwargs: str = "{}") -> bytes:
    body = base64.b64encode(f"[{args}, {kwargs}, null]".encode()).decode()
    headers = {"task": "app.add", "id": "1"}
    properties = {"body_encoding": "base64"}
    return json.dumps(
        {"body": body, "content-type": "application/json", "headers": headers, "properties": properties}
    ).encode()


def _nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize("levels", [300, 900, 100_000])
def test_a_deep_message_is_refused_by_name(levels: int) -> None:
    envelope = b'{"body": "", "properties": {"a": ' + _nested(levels).encode() + b"}}"
    for raw in (_message(_nested(levels)), _message("[]", f'{{"a": {_nested(levels)}}}'), envelope):
        with pytest.raises(UnreadableMessage):
            read_message(raw)
    with pytest.raises(UnreadableMessage, match="nested in more than 200 levels"):
        read_message(_message(_nested(levels)))


def test_one_that_is_not_deep_is_read() -> None:
    assert read_message(_message(_nested(2))).args == [[]]
