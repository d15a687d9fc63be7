"""What is compared with the sidecar: what it is sent, how it is built, and how the findings are shown."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import peers
import pytest
from bronze_sidecar.envelope.event import Event
from bronze_sidecar.routing.route import Address
from bronze_sidecar.routing.rules import Record
from chaos.cell import Findings as Outcome
from machine import percentiles
from routers import Connect, Dapr, calls_of

ROOT = Path(__file__).parents[3]
BENCH = ROOT / "tests/bench"


def record(destination: str, envelope: bytes) -> Record:
    address = Address(destination=destination, key="k", headers=(("payloadCase", "trade"),))
    return Record(address, Event(envelope=envelope, payload_case="trade", data_type="t"))


def test_calls_are_cut_in_order() -> None:
    records = [record(name, b"") for name in "abaab"]
    cut = [[each.address.destination for each in call] for call in calls_of(records, 2, is_sorted=False)]
    assert cut == [["a", "b"], ["a", "a"]]


def test_sorted_calls_have_one_destination_and_the_rest_is_kept_if_wanted() -> None:
    records = [record(name, b"") for name in "abaabcb"]
    calls = calls_of(records, 2, is_sorted=True, with_rest=True)
    assert [[each.address.destination for each in call] for call in calls] == [
        *(["a", "a"], ["b", "b"], ["a"], ["c"], ["b"]),
    ]
