"""Certificates for servers of tests: good ones, and each kind of bad."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_DAY = timedelta(days=1)
_SIGNS = x509.KeyUsage(
    digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip
"""Python 3.13 and newer refuse an authority that does not say so, and a certificate that does not say whose it is."""


class Authority:
    """Signs certificates; `pem` is what its friends trust."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("tarry's tests")
        now = datetime.now(UTC)
        builder = _builder(self._name, self._name, self._key, now - _DAY, now + _DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_SIGNS, critical=True)
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def sign(self, names: Sequence[str], days: int = 1, own: bool = False) -> Path:
        """A file with a certificate for these names or addresses, and its key. days: until it expires; below 0 it has.
        own: it is signed by itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(names[0])
        until = datetime.now(UTC) + days * _DAY
        builder = _builder(subject, subject if own else self._name, key, until - 10 * _DAY, until)
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key((key if own else self._key).public_key())
        builder = builder.add_extension(issuer, False)
        signed = builder.sign(key if own else self._key, hashes.SHA256())
        file = self._directory / f"{x509.random_serial_number()}.pem"
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file.write_bytes(signed.public_bytes(Encoding.PEM) + secret)
        return file


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, since: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
