"""TLS with the operator's certificate: versions 1.2 and 1.3, HTTP/1.1."""

import hashlib
import logging
import os
import ssl
import stat
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from coretools.errors import BadSetting
from coretools.web.common.config import ServerSection

_logger = logging.getLogger(__name__)
_NO_PEM = "one of them is not PEM, or they are in each other's place"


@dataclass(frozen=True, slots=True)
class Certificate:
    """The content of a certificate file."""

    digest: str
    """SHA-256 of the whole file."""
    begins: datetime
    ends: datetime
    chain: int
    """Number of certificates in the file, including the server's own."""

    def require_valid(self, path: str) -> None:
        """Refuse a certificate that clients would refuse now.

        Raises:
            BadSetting: it is expired, or not valid yet.
        """
        now = datetime.now(UTC)
        if now >= self.ends:
            raise BadSetting(f"server.tls_certificate {path}: expired on {self.ends:%Y-%m-%d %H:%M} UTC; renew it")
        if now < self.begins:
            raise BadSetting(f"server.tls_certificate {path}: not valid before {self.begins:%Y-%m-%d %H:%M} UTC")

    @property
    def days_left(self) -> int:
        """The whole days until it expires."""
        return (self.ends - datetime.now(UTC)).days


def certificate_of(server: ServerSection) -> Certificate | None:
    """Read the server's certificate; None if none is configured.

    Raises:
        BadSetting: it can't be read.
    """
    if not server.tls_certificate:
        return None
    try:
        data = Path(server.tls_certificate).read_bytes()
        chain = x509.load_pem_x509_certificates(data)
    except OSError as error:
        raise _unreadable("tls_certificate", server.tls_certificate, error) from error
    except ValueError as error:
        raise BadSetting(f"server.tls_certificate {server.tls_certificate} and its key: {_NO_PEM}") from error
    own = chain[0]
    return Certificate(hashlib.sha256(data).hexdigest(), own.not_valid_before_utc, own.not_valid_after_utc, len(chain))


def require_chain(path: str) -> None:
    """Refuse a file whose certificates are not a chain, the server's own first: clients could not verify it.

    Raises:
        BadSetting: names the two certificates that do not match.
    """
    chain = x509.load_pem_x509_certificates(Path(path).read_bytes())
    for number, (one, above) in enumerate(pairwise(chain), 1):
        try:
            one.verify_directly_issued_by(above)
        except (ValueError, TypeError, InvalidSignature):
            raise BadSetting(
                f"server.tls_certificate {path}: certificate {number + 1} did not sign certificate {number}; put the "
                "server's own first, then those that lead to the authority"
            ) from None


def tls_context(server: ServerSection) -> ssl.SSLContext | None:
    """Create the TLS context of connections; None if no certificate is configured.

    Raises:
        BadSetting: certificate or key can't be used.
    """
    if not server.tls_certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _require_readable(server)
    try:
        context.load_cert_chain(server.tls_certificate, server.tls_key or None, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = _reason(error)
        raise BadSetting(f"server.tls_certificate {server.tls_certificate} and its key: {reason}") from error
    return context


def open_key(server: ServerSection) -> str | None:
    """Return a warning if every user may read the private key.

    It does not end the start: Kubernetes mounts secrets this way into a container, which has no other users.
    """
    path = server.tls_key or server.tls_certificate
    with suppress(OSError):  # reported when the key is loaded
        if path and os.stat(path).st_mode & stat.S_IROTH:
            return f"server.tls_key {path}: every user of this machine can read it; run chmod 600 {path}"
    return None


def warn_of_key(server: ServerSection) -> None:
    """Log a warning if every user may read the private key."""
    reason = open_key(server)
    if reason is not None:
        _logger.warning("%s", reason)


def warn_of_time(server: ServerSection) -> None:
    """Log a warning if clients will refuse the certificate. The start continues: SIGHUP loads a new one."""
    certificate = certificate_of(server)
    try:
        if certificate is not None:
            certificate.require_valid(server.tls_certificate)
    except BadSetting as error:
        _logger.warning("%s; clients refuse it", error)


def _require_readable(server: ServerSection) -> None:
    """Refuse a file that can't be opened, by name; OpenSSL does not report which of the two failed."""
    for key, path in (("tls_certificate", server.tls_certificate), ("tls_key", server.tls_key)):
        try:
            if path:
                Path(path).read_bytes()
        except OSError as error:
            raise _unreadable(key, path, error) from error


def _unreadable(key: str, path: str, error: OSError) -> BadSetting:
    return BadSetting(f"server.{key} {path}: can't be read: {error.strerror}")


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "they don't go together; it is the key of another certificate"
        # OpenSSL gives no reason for a text without PEM.
        return error.reason or _NO_PEM
    return getattr(error, "strerror", None) or str(error)


def _no_password() -> str:
    """Refuse an encrypted key; OpenSSL would ask for the password at a terminal."""
    raise ValueError("the key has a password")
