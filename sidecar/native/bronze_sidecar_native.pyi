from collections.abc import Sequence
from typing import Generic, TypeVar

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
