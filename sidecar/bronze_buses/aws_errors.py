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
# InvalidSecurity: the queue's policy asks for HTTPS.
DENIAL_CODES = {
    "AccessDenied",
    "AccessDeniedException",
    "InvalidSecurity",
    "KMS.AccessDeniedException",
    "KMSAccessDeniedException",
    "KmsAccessDenied",
}
MISSING_CODES = {"InvalidAddress", "NonExistentQueue", "QueueDoesNotExist", "ResourceNotFoundException"}
KEY_CODES = {
    "KMS.DisabledException",
    "KMS.InvalidKeyUsageException",
    "KMS.InvalidStateException",
    "KMS.NotFoundException",
    "KMS.OptInRequired",
    "KMSDisabledException",
    "KMSInvalidStateException",
    "KMSNotFoundException",
    "KMSOptInRequired",
    "KmsDisabled",
    "KmsInvalidKeyUsage",
    "KmsInvalidState",
    "KmsNotFound",
    "KmsOptInRequired",
}
BUSY_CODES = {
    "InternalError",
    "InternalFailure",
    "InternalFailureException",
    "InternalServerError",
    "KMS.ThrottlingException",
    "KMSThrottlingException",
    "KmsThrottled",
    "LimitExceededException",
    "OverLimit",
    "ProvisionedThroughputExceededException",
    "RequestThrottled",
    "ServiceUnavailable",
    "ServiceUnavailableException",
    "Throttling",
    "ThrottlingException",
}
# 413 is a status: a gateway before the service has no codes. Calls that are too large pass in parts.
REQUEST_CODES = {
    "413",
    "BatchEntryIdsNotDistinct",
    "BatchRequestTooLong",
    "EmptyBatchRequest",
    "InvalidArgumentException",
    "InvalidAttributeValue",
    "InvalidBatchEntryId",
    "InvalidMessageContents",
    "InvalidParameterCombination",
    "InvalidParameterValue",
    "MissingParameter",
    "RequestEntityTooLargeException",
    "SerializationException",
    "TooManyEntriesInBatchRequest",
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
    """There is no such stream or queue; it may be made."""
    KEY_UNUSABLE = auto()
    """The key that encrypts the stream or queue cannot be used; that can be put right."""
    BUSY = auto()
    """It passes by itself."""
    BAD_REQUEST = auto()
    """The service will never accept the call as it is."""
    TLS_FAILED = auto()
    UNREACHABLE = auto()
    OTHER = auto()
    """Nothing is known about it."""


def meaning_of(error: Exception) -> Meaning:
    """Return what an error from botocore or the network means."""
    if isinstance(error, exceptions.ClientError):
        return meaning_of_code(error_code(error.response))
    if isinstance(error, UNUSABLE_CREDENTIALS):
        return Meaning.NO_CREDENTIALS
    if isinstance(error, exceptions.SSLError):
        return Meaning.TLS_FAILED
    if isinstance(error, exceptions.ConnectionError | exceptions.HTTPClientError | OSError):
        return Meaning.UNREACHABLE
    return Meaning.OTHER


def meaning_of_code(code: str) -> Meaning:
    """Return what a code means, that of a call or of one record in it."""
    return _BY_CODE.get(_without_namespace(code), Meaning.OTHER)


def error_code(response: Any) -> str:
    """Return an error's code without the namespace that some services put before it."""
    return _without_namespace(str(response.get("Error", {}).get("Code", "")))


def _without_namespace(code: str) -> str:
    name = code.rpartition("#")[2]
    # What follows "KMS." would mean something else on its own.
    return name if name.startswith("KMS.") else name.rpartition(".")[2]


_BY_CODE = {
    **dict.fromkeys(CREDENTIAL_CODES, Meaning.CREDENTIALS_REFUSED),
    **dict.fromkeys(DENIAL_CODES, Meaning.DENIED),
    **dict.fromkeys(MISSING_CODES, Meaning.MISSING),
    **dict.fromkeys(KEY_CODES, Meaning.KEY_UNUSABLE),
    **dict.fromkeys(BUSY_CODES, Meaning.BUSY),
    **dict.fromkeys(REQUEST_CODES, Meaning.BAD_REQUEST),
}
