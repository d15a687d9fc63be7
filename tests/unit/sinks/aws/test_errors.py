"""What AWS codes mean for a call, and for one record in it."""

from __future__ import annotations

from typing import Any

import pytest
from botocore import exceptions
from bronze_buses.aws_errors import Meaning, error_code, meaning_of, meaning_of_code
from bronze_sidecar.errors import DeliveryError, Permanent, Transient
from bronze_sidecar.sinks.aws.service import refused_entry

CALLS = [
    # What PutRecords and every call to Kinesis may say.
    ("ResourceNotFoundException", Meaning.MISSING),
    ("InvalidArgumentException", Meaning.BAD_REQUEST),
    ("ValidationException", Meaning.BAD_REQUEST),
    ("SerializationException", Meaning.BAD_REQUEST),
    ("ProvisionedThroughputExceededException", Meaning.BUSY),
    ("LimitExceededException", Meaning.BUSY),
    ("InternalFailure", Meaning.BUSY),
    ("InternalFailureException", Meaning.BUSY),
    ("ServiceUnavailable", Meaning.BUSY),
    ("ThrottlingException", Meaning.BUSY),
    ("KMSThrottlingException", Meaning.BUSY),
    ("KMSDisabledException", Meaning.KEY_UNUSABLE),
    ("KMSInvalidStateException", Meaning.KEY_UNUSABLE),
    ("KMSNotFoundException", Meaning.KEY_UNUSABLE),
    ("KMSOptInRequired", Meaning.KEY_UNUSABLE),
    ("KMSAccessDeniedException", Meaning.DENIED),
    ("AccessDeniedException", Meaning.DENIED),
    ("ExpiredTokenException", Meaning.CREDENTIALS_REFUSED),
    ("UnrecognizedClientException", Meaning.CREDENTIALS_REFUSED),
    ("InvalidSignatureException", Meaning.CREDENTIALS_REFUSED),
    # What SendMessageBatch may say, in the names of today and in those of the query protocol.
    ("QueueDoesNotExist", Meaning.MISSING),
    ("AWS.SimpleQueueService.NonExistentQueue", Meaning.MISSING),
    ("com.amazonaws.sqs#QueueDoesNotExist", Meaning.MISSING),
    ("InvalidAddress", Meaning.MISSING),
    ("BatchRequestTooLong", Meaning.BAD_REQUEST),
    ("AWS.SimpleQueueService.BatchRequestTooLong", Meaning.BAD_REQUEST),
    ("TooManyEntriesInBatchRequest", Meaning.BAD_REQUEST),
    ("EmptyBatchRequest", Meaning.BAD_REQUEST),
    ("BatchEntryIdsNotDistinct", Meaning.BAD_REQUEST),
    ("InvalidBatchEntryId", Meaning.BAD_REQUEST),
    ("InvalidMessageContents", Meaning.BAD_REQUEST),
    ("InvalidParameterValue", Meaning.BAD_REQUEST),
    ("UnsupportedOperation", Meaning.BAD_REQUEST),
    ("AWS.SimpleQueueService.UnsupportedOperation", Meaning.BAD_REQUEST),
    ("RequestThrottled", Meaning.BUSY),
    ("OverLimit", Meaning.BUSY),
    ("KmsThrottled", Meaning.BUSY),
    ("KMS.ThrottlingException", Meaning.BUSY),
    ("KmsDisabled", Meaning.KEY_UNUSABLE),
    ("KMS.DisabledException", Meaning.KEY_UNUSABLE),
    ("KmsInvalidKeyUsage", Meaning.KEY_UNUSABLE),
    ("KmsInvalidState", Meaning.KEY_UNUSABLE),
    ("KmsNotFound", Meaning.KEY_UNUSABLE),
    ("KMS.NotFoundException", Meaning.KEY_UNUSABLE),
    ("KmsOptInRequired", Meaning.KEY_UNUSABLE),
    ("KMS.OptInRequired", Meaning.KEY_UNUSABLE),
    ("KmsAccessDenied", Meaning.DENIED),
    ("KMS.AccessDeniedException", Meaning.DENIED),
    ("InvalidSecurity", Meaning.DENIED),
    ("ExpiredToken", Meaning.CREDENTIALS_REFUSED),
    # What stands before a service.
    ("413", Meaning.BAD_REQUEST),
    ("503", Meaning.OTHER),
    ("SomethingThatNobodyHasHeardOf", Meaning.OTHER),
    ("", Meaning.OTHER),
]


@pytest.mark.parametrize(("code", "meaning"), CALLS)
def test_calls(code: str, meaning: Meaning) -> None:
    error = exceptions.ClientError({"Error": {"Code": code, "Message": "no"}}, "PutRecords")
    assert meaning_of(error) is meaning_of_code(code) is meaning


@pytest.mark.parametrize(
    "service", [("kinesis", "PutRecords"), ("sqs", "SendMessageBatch"), ("sqs", "SendMessage")]
)
def test_every_error_that_the_service_describes_is_known(service: tuple[str, str]) -> None:
    import botocore.session  # noqa: PLC0415 - slow, and only this test needs it

    name, operation = service
    model: Any = botocore.session.get_session().get_service_model(name)
    described = {shape.name for shape in model.operation_model(operation).error_shapes}
    # Answers a question that is never asked.
    described.discard("DryRunOperationException")
    assert described
    assert {code for code in described if meaning_of_code(code) is Meaning.OTHER} == set()


@pytest.mark.parametrize(
    ("code", "senders_fault", "kind"),
    [
        ("ProvisionedThroughputExceededException", False, Transient),
        ("InternalFailure", False, Transient),
        ("InternalError", False, Transient),
        ("SomethingThatNobodyHasHeardOf", False, Transient),
        ("SomethingThatNobodyHasHeardOf", True, Permanent),
        ("InvalidMessageContents", True, Permanent),
        ("InvalidMessageContents", False, Permanent),
        ("InvalidParameterValue", True, Permanent),
        ("AWS.SimpleQueueService.UnsupportedOperation", True, Permanent),
        ("RequestThrottled", True, Transient),
        ("KmsThrottled", True, Transient),
        ("OverLimit", True, Transient),
        ("KmsDisabled", True, Transient),
        ("KMS.AccessDeniedException", True, Transient),
        ("AccessDenied", True, Transient),
        ("ExpiredToken", True, Transient),
        ("QueueDoesNotExist", True, Transient),
    ],
)
def test_records_within_a_call(code: str, senders_fault: bool, kind: type[DeliveryError]) -> None:
    error = refused_entry(code, "no", senders_fault=senders_fault)
    assert type(error) is kind
    assert str(error) == f"{code}: no"


def test_a_code_is_shown_without_its_namespace() -> None:
    shown = {"Error": {"Code": "com.amazonaws.sqs#AWS.SimpleQueueService.NonExistentQueue"}}
    assert error_code(shown) == "NonExistentQueue"
    assert error_code({"Error": {"Code": "KMS.NotFoundException"}}) == "KMS.NotFoundException"
    assert error_code({}) == ""
