"""`[push] ca`: endpoints with certificates of a private authority."""

from pathlib import Path

import pytest

from tarry import App
from tarry.config.config import load
from tarry.errors import ConfigError
from tests.push.certificates import Authority
from tests.push.fixture import DeliveryFixture
from tests.push.server import Server
from tests.worker.bench import until


def configure(delivery: DeliveryFixture, directory: Path, url: str, push: str) -> App:
    (directory / "tarry.toml").write_text(f'[push]\nallow = ["127.0.0.1"]\n{push}[tasks.hook]\nurl = "{url}"\n')
    delivery.app.configure(load(directory=directory))
    return delivery.app


def test_what_it_has_signed_is_delivered_to(
    delivery: DeliveryFixture,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    authority: Authority,
    certificate: Path,
) -> None:
    other = Authority(tmp_path_factory.mktemp("another"))
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "ours.pem").write_bytes(b"Ours, of 2026:\n" + other.pem + authority.pem)
    with Server(certificate) as server:
        job = configure(delivery, tmp_path, server.url(), 'ca = "certs/ours.pem"\n').enqueue("hook", {})
        delivery.deliver()
        assert job.result(15)["status"] == 200


def test_without_it_nobody_trusts_that(delivery: DeliveryFixture, tmp_path: Path, certificate: Path) -> None:
    with Server(certificate) as server:
        job = configure(delivery, tmp_path, server.url(), "").enqueue("hook", {})
        delivery.deliver()
        until(lambda: delivery.records(job))
        assert "signed by nobody who is trusted here" in delivery.records(job)[0].reason


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "it cannot be read: No such file or directory"),
        (b"", "there is no certificate in it"),
        (b"\xff\x00 no PEM", "there is no certificate in it"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "there is no certificate in it"),
    ],
)
def test_a_file_that_is_none_is_told_with_its_place(
    delivery: DeliveryFixture, tmp_path: Path, content: bytes | None, why: str
) -> None:
    if content is not None:
        (tmp_path / "ours.pem").write_bytes(content)
    app = configure(delivery, tmp_path, "https://a.example/", 'ca = "ours.pem"\n')
    with pytest.raises(ConfigError) as wrong:
        app.http.load(thoroughly=True)
    assert str(wrong.value) == (
        f"tarry.toml:3: push.ca: {tmp_path}/ours.pem: {why}; name a file of certificates as PEM"
    )
