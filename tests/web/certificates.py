"""Self-signed certificates for this machine."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_PEM = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)


@dataclass(frozen=True)
class Certificate:
    """Paths of a certificate and its key."""

    path: Path
    key: Path
    serial: int


def write_certificate(
    folder: Path, *, days: int = 2, password: bytes | None = None, hosts: Sequence[str] = ()
) -> Certificate:
    """Write one for 127.0.0.1 and the hosts, replacing any in the folder; with no days left it expired an hour ago."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=days, hours=-1))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), *(x509.DNSName(host) for host in hosts)]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    locking = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    made = Certificate(folder / "certificate.pem", folder / "key.pem", built.serial_number)
    made.key.write_bytes(key.private_bytes(*_PEM, locking))
    made.key.chmod(0o600)
    made.path.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    return made
