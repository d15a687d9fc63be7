"""Finds, in the error of a client, what will not pass by itself."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator

OUR_CERTIFICATE_REFUSED = re.compile(r"ALERT.*(?:CERTIFICATE|UNKNOWN_CA)")


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and what it came from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def certificate_fault(error: BaseException, flags: str) -> str | None:
    """Return what is wrong with certificates, and which flags to check, if that made a connection fail.

    `flags` is what the flags begin with, such as `--nats`.
    """
    for each in causes(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return (
                f"the server's certificate is not trusted ({each.verify_message}): check {flags}-tls-ca-file."
            )
        if isinstance(each, ssl.SSLError) and OUR_CERTIFICATE_REFUSED.search(each.reason or ""):
            return (
                f"the server refuses our certificate ({each.reason}): check {flags}-tls-cert-file and"
                f" {flags}-tls-key-file."
            )
        if isinstance(each, FileNotFoundError | PermissionError):
            return f"a file that TLS needs cannot be read ({each.strerror}): check {flags}-tls-*-file."
    return None
