from bronze_client._generated.lakehouse.bronze.v1 import normalized_event_pb2 as _normalized_event_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TypedRequest(_message.Message):
    __slots__ = ("batch",)
    BATCH_FIELD_NUMBER: _ClassVar[int]
    batch: TypedBatch
    def __init__(self, batch: _Optional[_Union[TypedBatch, _Mapping]] = ...) -> None: ...

class TypedBatch(_message.Message):
    __slots__ = ("envelopes",)
    ENVELOPES_FIELD_NUMBER: _ClassVar[int]
    envelopes: _containers.RepeatedCompositeFieldContainer[_normalized_event_pb2.NormalizedEvent]
    def __init__(self, envelopes: _Optional[_Iterable[_Union[_normalized_event_pb2.NormalizedEvent, _Mapping]]] = ...) -> None: ...
