"""The compiled part of the hot path, where it is installed; the Python code does the same without it."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bronze_sidecar_native import JsonMapper, RecordBatch, Scanner

    from bronze_sidecar.envelope.event import Event

IS_INSTALLED = importlib.util.find_spec("bronze_sidecar_native") is not None


def scanner_type() -> type[Scanner[Event]]:
    """Return the scanner of envelopes; it must be installed."""
    from bronze_sidecar_native import Scanner  # noqa: PLC0415 - only where it is installed

    return Scanner


def json_mapper_type() -> type[JsonMapper[Event]]:
    """Return the mapper of JSON lines; it must be installed."""
    from bronze_sidecar_native import JsonMapper  # noqa: PLC0415 - only where it is installed

    return JsonMapper


def record_batch_type() -> type[RecordBatch]:
    """Return what builds record batches for Kafka; it must be installed."""
    from bronze_sidecar_native import RecordBatch  # noqa: PLC0415 - only where it is installed

    return RecordBatch
