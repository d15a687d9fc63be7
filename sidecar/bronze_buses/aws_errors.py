"""What errors from AWS calls mean, by code.

The codes are listed at https://docs.aws.amazon.com/kinesis/latest/APIReference/CommonErrors.html and on the
corresponding page for SQS, which names some of them differently.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from botocore import exceptions

CREDENTIAL_CODES = {
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "InvalidToken",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "NotAuthorized",
    "OptInRequired",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
DENIAL_CODES = {"AccessDenied", "AccessDeniedException", "KMSAccessDeniedException", "KmsAccessDenied"}
MISSING_CODES = {"InvalidAddress", "NonExistentQueue", "QueueDoesNotExist", "ResourceNotFoundException"}
REQUEST_CODES = {
    "BatchRequestTooLong",
    "InvalidArgumentException",
    "InvalidAttributeValue",
    "InvalidMessageContents",
    "InvalidParameterCombination",
    "InvalidParameterValue",
    "MissingParameter",
    "RequestEntityTooLargeException",
    "SerializationException",
    "UnsupportedOperation",
    "ValidationException",
}
UNUSABLE_CREDENTIALS = (
    exceptions.CredentialRetrievalError,
    exceptions.NoCredentialsError,
    exceptions.NoRegionError,
    exceptions.PartialCredentialsError,
    exceptions.ProfileNotFound,
    exceptions.SSOError,
    exceptions.TokenRetrievalError,
)


class Meaning(Enum):
    """What an error from a call means."""

    NO_CREDENTIALS = auto()
    """None can be used; the error's text names files and profiles, never a key."""
    CREDENTIALS_REFUSED = auto()
    """AWS does not know them, or no longer does; the error's text may hold parts of the request."""
    DENIED = auto()
    """The credentials are valid but do not allow the call."""
    MISSING = auto()
    """There is no such stream or queue."""
    BAD_REQUEST = auto()
    """The service will never accept the call as it is."""
    TLS_FAILED = auto()
    UNREACHABLE = auto()
    OTHER = auto()


def meaning_of(error: Exception) -> Meaning:
    """Return what an error from botocore or the network means."""
    if isinstance(error, exceptions.ClientError):
        return _BY_CODE.get(error_code(error.response), Meaning.OTHER)
    if isinstance(error, UNUSABLE_CREDENTIALS):
        return Meaning.NO_CREDENTIALS
    if isinstance(error, exceptions.SSLError):
        return Meaning.TLS_FAILED
    if isinstance(error, exceptions.ConnectionError | exceptions.HTTPClientError | OSError):
        return Meaning.UNREACHABLE
    return Meaning.OTHER


def error_code(response: Any) -> str:
    """Return an error's code without the namespace that some services put before it."""
    return str(response.get("Error", {}).get("Code", "")).rpartition(".")[2].rpartition("#")[2]


_BY_CODE = {
    **dict.fromkeys(CREDENTIAL_CODES, Meaning.CREDENTIALS_REFUSED),
    **dict.fromkeys(DENIAL_CODES, Meaning.DENIED),
    **dict.fromkeys(MISSING_CODES, Meaning.MISSING),
    **dict.fromkeys(REQUEST_CODES, Meaning.BAD_REQUEST),
}
