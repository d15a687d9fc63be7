"""TLS to a bus: its options, the context that they make, and what errors mean."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bronze_cli.options import option
from bronze_cli.values import File

from bronze_buses.errors import Refused

OUR_CERTIFICATE_REFUSED = re.compile(r"ALERT.*(?:CERTIFICATE|UNKNOWN_CA)")


@dataclass(frozen=True)
class TlsFiles:
    """The options that name certificates."""

    tls_ca_file: Path | None = option(File(), "CA certificates to trust instead of the system's.")
    tls_cert_file: Path | None = option(File(), "Client certificate, for mutual TLS.")
    tls_key_file: Path | None = option(File(), "Private key of the client certificate.")


def client_context(files: TlsFiles, flags: str) -> ssl.SSLContext:
    """Make a client's context; raise Refused if a file cannot be used.

    `flags` is what the files' flags begin with, such as `--nats-tls`.
    """
    try:
        context = ssl.create_default_context(cafile=files.tls_ca_file)
    except OSError as error:
        raise Refused(f"{flags}-ca-file cannot be used: {_reason(error)}") from error
    if files.tls_cert_file is not None and files.tls_key_file is not None:
        try:
            # Without a password the library would ask for one on the terminal.
            context.load_cert_chain(files.tls_cert_file, files.tls_key_file, password="")
        except OSError as error:
            raise Refused(
                f"{flags}-cert-file and {flags}-key-file cannot be used: {_reason(error)}"
            ) from error
    return context


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def tls_error(error: BaseException) -> ssl.SSLError | None:
    """Return the TLS error that caused another one, if any."""
    return next((each for each in causes(error) if isinstance(each, ssl.SSLError)), None)


def certificate_fault(error: BaseException, flags: str) -> str | None:
    """Return what is wrong with certificates and which flags to check, if that made a connection fail."""
    for each in causes(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return f"the server's certificate is not trusted ({each.verify_message}): check {flags}-ca-file"
        if isinstance(each, ssl.SSLError) and OUR_CERTIFICATE_REFUSED.search(each.reason or ""):
            return (
                f"the server refuses our certificate ({each.reason}): check {flags}-cert-file and"
                f" {flags}-key-file"
            )
        if isinstance(each, FileNotFoundError | PermissionError) and each.filename is not None:
            return f"a file that TLS needs cannot be read ({each.strerror}): check {flags}-*-file"
    return None
