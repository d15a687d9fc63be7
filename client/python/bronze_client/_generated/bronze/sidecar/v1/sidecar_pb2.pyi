from bronze_client._generated.lakehouse.bronze.v1 import normalized_event_pb2 as _normalized_event_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FailureKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAILURE_KIND_UNSPECIFIED: _ClassVar[FailureKind]
    FAILURE_KIND_REJECTED: _ClassVar[FailureKind]
    FAILURE_KIND_FAILED: _ClassVar[FailureKind]
FAILURE_KIND_UNSPECIFIED: FailureKind
FAILURE_KIND_REJECTED: FailureKind
FAILURE_KIND_FAILED: FailureKind

class PublishRequest(_message.Message):
    __slots__ = ("open", "batch")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    open: Open
    batch: Batch
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("producer_id", "context", "acknowledged_sequence")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    producer_id: str
    context: StreamContext
    acknowledged_sequence: int
    def __init__(self, producer_id: _Optional[str] = ..., context: _Optional[_Union[StreamContext, _Mapping]] = ..., acknowledged_sequence: _Optional[int] = ...) -> None: ...

class StreamContext(_message.Message):
    __slots__ = ("stream_id", "source", "origin", "request_id", "session_id", "meta")
    class MetaEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    source: str
    origin: _normalized_event_pb2.Origin
    request_id: str
    session_id: str
    meta: _containers.ScalarMap[str, str]
    def __init__(self, stream_id: _Optional[str] = ..., source: _Optional[str] = ..., origin: _Optional[_Union[_normalized_event_pb2.Origin, str]] = ..., request_id: _Optional[str] = ..., session_id: _Optional[str] = ..., meta: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("sequence", "first_position", "envelopes", "json", "mixed", "end", "levels")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    ENVELOPES_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    MIXED_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    first_position: int
    envelopes: _containers.RepeatedScalarFieldContainer[bytes]
    json: _containers.RepeatedScalarFieldContainer[bytes]
    mixed: _containers.RepeatedScalarFieldContainer[bytes]
    end: End
    levels: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sequence: _Optional[int] = ..., first_position: _Optional[int] = ..., envelopes: _Optional[_Iterable[bytes]] = ..., json: _Optional[_Iterable[bytes]] = ..., mixed: _Optional[_Iterable[bytes]] = ..., end: _Optional[_Union[End, _Mapping]] = ..., levels: _Optional[_Iterable[int]] = ...) -> None: ...

class End(_message.Message):
    __slots__ = ("dropped",)
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    dropped: int
    def __init__(self, dropped: _Optional[int] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("opened", "acknowledgement", "credits")
    OPENED_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGEMENT_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    opened: Opened
    acknowledgement: Acknowledgement
    credits: Credits
    def __init__(self, opened: _Optional[_Union[Opened, _Mapping]] = ..., acknowledgement: _Optional[_Union[Acknowledgement, _Mapping]] = ..., credits: _Optional[_Union[Credits, _Mapping]] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("acknowledged_sequence", "credits", "outcome", "takes_end")
    ACKNOWLEDGED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    TAKES_END_FIELD_NUMBER: _ClassVar[int]
    acknowledged_sequence: int
    credits: Credits
    outcome: Outcome
    takes_end: bool
    def __init__(self, acknowledged_sequence: _Optional[int] = ..., credits: _Optional[_Union[Credits, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ..., takes_end: _Optional[bool] = ...) -> None: ...

class Credits(_message.Message):
    __slots__ = ("events", "bytes", "batch_bytes")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    events: int
    bytes: int
    batch_bytes: int
    def __init__(self, events: _Optional[int] = ..., bytes: _Optional[int] = ..., batch_bytes: _Optional[int] = ...) -> None: ...

class Acknowledgement(_message.Message):
    __slots__ = ("sequence", "outcome")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    outcome: Outcome
    def __init__(self, sequence: _Optional[int] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("published", "filtered", "failures")
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    FILTERED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    published: int
    filtered: int
    failures: _containers.RepeatedCompositeFieldContainer[Failure]
    def __init__(self, published: _Optional[int] = ..., filtered: _Optional[int] = ..., failures: _Optional[_Iterable[_Union[Failure, _Mapping]]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("position", "kind", "reason", "backend", "level")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    position: int
    kind: FailureKind
    reason: str
    backend: str
    level: int
    def __init__(self, position: _Optional[int] = ..., kind: _Optional[_Union[FailureKind, str]] = ..., reason: _Optional[str] = ..., backend: _Optional[str] = ..., level: _Optional[int] = ...) -> None: ...

class PublishBatchRequest(_message.Message):
    __slots__ = ("context", "batch")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    context: StreamContext
    batch: Batch
    def __init__(self, context: _Optional[_Union[StreamContext, _Mapping]] = ..., batch: _Optional[_Union[Batch, _Mapping]] = ...) -> None: ...

class PublishBatchResponse(_message.Message):
    __slots__ = ("outcome",)
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    def __init__(self, outcome: _Optional[_Union[Outcome, _Mapping]] = ...) -> None: ...

class TapRequest(_message.Message):
    __slots__ = ("exchanges", "symbols", "payload_cases", "backends", "failures_only")
    EXCHANGES_FIELD_NUMBER: _ClassVar[int]
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_CASES_FIELD_NUMBER: _ClassVar[int]
    BACKENDS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_ONLY_FIELD_NUMBER: _ClassVar[int]
    exchanges: _containers.RepeatedScalarFieldContainer[str]
    symbols: _containers.RepeatedScalarFieldContainer[str]
    payload_cases: _containers.RepeatedScalarFieldContainer[str]
    backends: _containers.RepeatedScalarFieldContainer[str]
    failures_only: bool
    def __init__(self, exchanges: _Optional[_Iterable[str]] = ..., symbols: _Optional[_Iterable[str]] = ..., payload_cases: _Optional[_Iterable[str]] = ..., backends: _Optional[_Iterable[str]] = ..., failures_only: _Optional[bool] = ...) -> None: ...

class TapResponse(_message.Message):
    __slots__ = ("events", "skipped")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[TappedEvent]
    skipped: int
    def __init__(self, events: _Optional[_Iterable[_Union[TappedEvent, _Mapping]]] = ..., skipped: _Optional[int] = ...) -> None: ...

class TappedEvent(_message.Message):
    __slots__ = ("event_id", "envelope", "json", "backend", "destination", "key", "headers", "failure", "reason")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    event_id: str
    envelope: bytes
    json: bytes
    backend: str
    destination: str
    key: str
    headers: _containers.RepeatedCompositeFieldContainer[TappedHeader]
    failure: FailureKind
    reason: str
    def __init__(self, event_id: _Optional[str] = ..., envelope: _Optional[bytes] = ..., json: _Optional[bytes] = ..., backend: _Optional[str] = ..., destination: _Optional[str] = ..., key: _Optional[str] = ..., headers: _Optional[_Iterable[_Union[TappedHeader, _Mapping]]] = ..., failure: _Optional[_Union[FailureKind, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class TappedHeader(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
