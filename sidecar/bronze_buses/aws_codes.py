"""Codes of errors that every call to AWS may be answered with, grouped by what the operator has to mend.

They stand on https://docs.aws.amazon.com/kinesis/latest/APIReference/CommonErrors.html and on the same page
of SQS, which names some of them differently.
"""

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
