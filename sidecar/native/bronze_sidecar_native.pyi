from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

INTERFACE: int

_Event = TypeVar("_Event")

class Scanner(Generic[_Event]):
    def __init__(
        self,
        event: type[_Event],
        *,
        id_prefix: str,
        source: tuple[str, bytes],
        origin: tuple[int, bytes],
        context_meta: Sequence[tuple[str, str, bytes]],
        needs_meta: bool,
        longest_name: int,
        origins: Sequence[str],
    ) -> None: ...
    def scan(
        self, envelopes: Sequence[bytes], first_position: int, levels: Sequence[int], ingest_field: bytes
    ) -> tuple[list[_Event], list[tuple[int, int]]]: ...

_Facts: TypeAlias = tuple[str, str, str, str, str, Mapping[str, str]]

class JsonMapper(Generic[_Event]):
    def __init__(
        self,
        event: type[_Event],
        *,
        id_prefix: str,
        most_events: int,
        most_bytes: int,
        largest: int,
        level_bytes: int,
    ) -> None: ...
    def map(
        self,
        lines: list[bytes],
        start: int,
        first_position: int,
        ingest_field: bytes,
        groups: list[list[_Event]],
        events: int,
        size: int,
        frame_of: Callable[
            [tuple[str, str, str, str, bool | None], list[str]], tuple[bytes, bytes, _Facts, bool] | None
        ],
    ) -> tuple[int, int, int, bool]: ...
    def forget(self) -> None: ...

class RecordBatch:
    def __init__(
        self, codec: int, compress: Callable[[bytes], bytes] | None, most_bytes: int, timestamp: int
    ) -> None: ...
    def fill(
        self,
        records: list[Any],
        start: int,
        frame: bytes,
        id_header: str,
        more_headers: Callable[[Any], list[tuple[str, str]]] | None,
    ) -> int: ...
    def build(self, producer_id: int, producer_epoch: int, sequence: int) -> bytes: ...

def publish_commands(
    records: Iterable[Any],
    first_reply: bytes,
    reply: bytes,
    most: int,
    prepare: Callable[[Any], tuple[bytes, bytes, int]],
    more_headers: Callable[[Any], bytes] | None,
) -> tuple[bytes, list[tuple[int, int]]]: ...
def script_entries(
    records: Iterable[Any], number_of: Callable[[Any], bytes], has_meta: bool
) -> tuple[bytes, int]: ...
