"""Signatures, as the reference library and the vectors of Standard Webhooks have them."""

import base64
import re
import time

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook, WebhookVerificationError

from tarry.errors import ConfigError
from tarry.push.http.sign import Signer, headers

ID, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}'
SYMMETRIC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
PRIVATE = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk="


def test_the_vectors_of_the_reference_libraries() -> None:
    assert Signer([SYMMETRIC]).signature(ID, 1614265330, BODY) == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert Signer([PRIVATE]).signature(ID, 1614265330, BODY) == (
        "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag=="
    )


@pytest.mark.parametrize("known", [SYMMETRIC, OTHER])
def test_the_reference_library_accepts_it_with_either_of_two_secrets(known: str) -> None:
    sent = dict(headers(Signer([PRIVATE, OTHER, SYMMETRIC]), "0193", 1, 0, time.time(), BODY))
    assert Webhook(known).verify(BODY, sent) == {"test": 2432232314}


@pytest.mark.parametrize("changed", [b'{"test": 2432232315}', b"", BODY + b" "])
def test_the_reference_library_refuses_another_body(changed: bytes) -> None:
    sent = dict(headers(Signer([SYMMETRIC]), "0193", 1, 0, time.time(), BODY))
    with pytest.raises(WebhookVerificationError):
        Webhook(SYMMETRIC).verify(changed, sent)


def test_raw_text_is_a_key_as_it_stands() -> None:
    sent = dict(headers(Signer(["a plain old secret, ä"]), "0193", 1, 0, time.time(), BODY))
    assert Webhook("a plain old secret, ä".encode()).verify(BODY, sent)


def test_bytes_that_are_no_text_are_signed_as_they_are() -> None:
    assert Signer([SYMMETRIC]).signature(ID, 1, b"\xff\x00%d").startswith("v1,")


def test_a_public_key_checks_what_its_secret_signed() -> None:
    signer = Signer([PRIVATE])
    (public,) = signer.public
    assert public.startswith("whpk_")
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public.removeprefix("whpk_")))
    signature = base64.b64decode(signer.signature("x", 7, b"body").removeprefix("v1a,"))
    key.verify(signature, b"x.7.body")
    with pytest.raises(InvalidSignature):
        key.verify(signature, b"x.8.body")


def test_a_private_key_with_its_public_half_is_the_same_key() -> None:
    seed = base64.b64decode(PRIVATE.removeprefix("whsk_"))
    public = base64.b64decode(Signer([PRIVATE]).public[0].removeprefix("whpk_"))
    both = "whsk_" + base64.b64encode(seed + public).decode()
    assert Signer([both]).signature(ID, 1, BODY) == Signer([PRIVATE]).signature(ID, 1, BODY)


def test_all_headers_of_a_delivery() -> None:
    assert headers(Signer([SYMMETRIC]), "0193-a", 3, 1_763_765_100_123_456, 1_763_765_101.9, b"{}") == (
        ("webhook-id", "0193-a"),
        ("webhook-timestamp", "1763765101"),
        ("webhook-signature", Signer([SYMMETRIC]).signature("0193-a", 1_763_765_101, b"{}")),
        ("tarry-attempt", "3"),
        ("tarry-due", "2025-11-21T22:45:00.123Z"),
        ("idempotency-key", '"0193-a"'),
    )


def test_without_secrets_nothing_is_signed() -> None:
    assert "webhook-signature" not in dict(headers(Signer([]), "0193", 1, 0, 1.0, b""))


def test_base64_may_lack_its_padding() -> None:
    assert Signer([PRIVATE.rstrip("=")]).public == Signer([PRIVATE]).public


@pytest.mark.parametrize(
    ("secret", "told"),
    [
        ("whsec_c2hvcnQ=", r"secret 2 of 2 has 5 bytes: whsec_ takes base64 of 24 to 64 of them"),
        ("whsec_" + base64.b64encode(bytes(65)).decode(), "has 65 bytes"),
        ("whsec_not base64!", r"secret 2 of 2 is no base64 after whsec_"),
        ("whsec_ä", "is no base64 after whsec_"),
        ("whsk_c2hvcnQ=", r"secret 2 of 2 has 5 bytes: whsk_ takes base64 of an ed25519 key, 32 or 64 of them"),
        ("whsk_" + base64.b64encode(bytes(64)).decode(), "its public half does not belong"),
        ("whpk_" + base64.b64encode(bytes(32)).decode(), "is a public key, which cannot sign"),
        ("hunter2", r"secret 2 of 2 has 7 characters: write 16 or more"),
        ("", "has 0 characters"),
    ],
)
def test_what_is_no_secret_is_told_and_not_shown(secret: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        Signer([SYMMETRIC, secret])
    material = secret.rpartition("_")[2]
    assert not material or material not in str(caught.value)


def test_so_many_secrets_are_a_mistake() -> None:
    with pytest.raises(ConfigError, match="11 secrets are too many"):
        Signer([SYMMETRIC] * 11)


def test_its_repr_shows_nothing() -> None:
    assert repr(Signer([SYMMETRIC, PRIVATE])) == "Signer(2 secrets)"
    assert not re.search("MfKQ|VEVT", repr(vars(Signer([SYMMETRIC, PRIVATE]))))
