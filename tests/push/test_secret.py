"""Secrets: shown nowhere, read where they are, and told by place when they are not there."""

import copy
import pickle
from pathlib import Path

import msgspec
import pytest

from tarry.config.kinds import MOST_SECRET
from tarry.errors import ConfigError
from tarry.push.endpoint.secret import Secret


def test_a_secret_is_its_value_and_is_not_shown() -> None:
    secret = Secret("whsec_abc")
    assert secret.value() == secret.written() == "whsec_abc"
    assert secret.literal
    assert "abc" not in f"{secret!r} {secret} {[secret]}"
    assert secret == Secret("whsec_abc")
    assert hash(secret) == hash(Secret("whsec_abc"))
    assert secret != Secret("other")
    assert secret != "whsec_abc"


def test_a_secret_does_not_get_into_json_or_pickles() -> None:
    with pytest.raises(TypeError):
        msgspec.json.encode(Secret("whsec_abc"))
    for leak in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="not to be pickled"):
            leak(Secret("whsec_abc"))


def test_a_variable_is_read_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Secret("env:TARRY_TEST_SECRET")
    assert not secret.literal
    assert repr(secret) == "<secret env:TARRY_TEST_SECRET>"
    for empty in (None, "", " "):
        monkeypatch.delenv("TARRY_TEST_SECRET", raising=False)
        if empty is not None:
            monkeypatch.setenv("TARRY_TEST_SECRET", empty)
        with pytest.raises(ConfigError, match="env:TARRY_TEST_SECRET: the variable TARRY_TEST_SECRET is not set"):
            secret.value()
    monkeypatch.setenv("TARRY_TEST_SECRET", "abc\n")
    assert secret.value() == "abc"


def test_a_file_is_read_when_it_is_used_and_again_when_it_is_another(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    secret = Secret(f"file:{file}")
    with pytest.raises(ConfigError, match=r"it cannot be read: No such file .*; see that workers may read it"):
        secret.value()
    file.write_text("abc\n", encoding="utf-8")
    assert secret.value() == "abc"
    (tmp_path / "next").write_text("xyz\n", encoding="utf-8")
    (tmp_path / "next").rename(file)
    assert secret.value() == "xyz"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b"\xff", "no text in UTF-8"),
        (b"x" * (MOST_SECRET + 1), "at most 8192 bytes"),
    ],
)
def test_a_file_that_is_no_secret_is_told(tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=told):
        Secret(f"file:{file}").value()


def test_a_directory_is_no_secret(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file"):
        Secret(f"file:{tmp_path}").value()
