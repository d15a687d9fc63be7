"""The bodies that are made by hand say what the library's own serializer says."""

from __future__ import annotations

import base64
import json
from typing import Any

import botocore.session
from botocore.serialize import create_serializer
from bronze_sidecar.routing.route import Route
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.sinks.aws.service import Question
from bronze_sidecar.sinks.kinesis.sink import KinesisSink
from bronze_sidecar.sinks.sqs.sink import SqsSink
from configurations import backend_of
from events import event

NOTHING = Question("", {})
AWKWARD = 'a"b\\c/\u00fc\U0001f600'


class Listening:
    """Stands for a service; remembers the bodies that were sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def send(self, _: str, body: bytes) -> dict[str, Any]:
        self.bodies.append(body)
        return {}


def by_library(service: str, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
    model = botocore.session.get_session().get_service_model(service)
    serializer = create_serializer(model.metadata["protocol"])
    request = serializer.serialize_to_request(parameters, model.operation_model(operation))
    made: dict[str, Any] = json.loads(request["body"])
    return made


async def test_put_records() -> None:
    backend = backend_of("--kinesis-stream=s", "--kinesis-region=eu-central-1")
    service = Listening()
    sink = KinesisSink(service, backend, NOTHING)  # type: ignore[arg-type]
    events = [event(symbol=AWKWARD, envelope=bytes(range(256))), event(symbol="B", envelope=b"")]
    batch = addressed(backend, events)
    assert not await sink.write(batch)
    parameters = {
        "StreamName": "s",
        "Records": [
            {"Data": bytes(range(256)), "PartitionKey": batch[0].address.key},
            {"Data": b"", "PartitionKey": "binance|B|trade"},
        ],
    }
    assert [json.loads(body) for body in service.bodies] == [by_library("kinesis", "PutRecords", parameters)]


async def test_send_message_batch() -> None:
    url = "https://sqs.eu-central-1.amazonaws.com/123456789012/q.fifo"
    backend = backend_of(
        f"--sqs-queue-url={url}",
        "--sqs-region=eu-central-1",
        f"--sqs-static-attributes=env:{AWKWARD}",
        "--sqs-message-attributes=request:{{meta.request_id}},nothing:{{meta.absent}}",
    )
    service = Listening()
    sink = SqsSink(service, backend, Route(backend.rules()), NOTHING)  # type: ignore[arg-type]
    assert not await sink.write(addressed(backend, [event(envelope=bytes(range(256)), data_type="")]))
    attributes = {"payloadCase": "trade", "env": AWKWARD, "request": "r1"}
    parameters = {
        "QueueUrl": url,
        "Entries": [
            {
                "Id": "0",
                "MessageBody": base64.b64encode(bytes(range(256))).decode(),
                "MessageAttributes": {
                    name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
                },
                "MessageGroupId": "binance|BTCUSDT|trade",
                "MessageDeduplicationId": "stream:7",
            }
        ],
    }
    assert [json.loads(body) for body in service.bodies] == [
        by_library("sqs", "SendMessageBatch", parameters)
    ]


def addressed(backend: Any, events: list[Any]) -> list[Record]:
    route = Route(backend.rules())
    return [Record(address, each) for each in events if (address := route.address(each))]
