"""The table of payload cases agrees with everything that names them by other means."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import get_args

from bronze_client.schema import ErrorCode, NormalizedEvent
from bronze_pipeline.silver.records import RECORDS
from bronze_sidecar.envelope.payloads import META_OF_SIDECAR, PAYLOADS, snake_case
from bronze_sidecar.mapping.messages import AnyMessage

ROOT = Path(__file__).resolve().parents[3]


def test_the_schema_has_these_payloads_under_these_numbers() -> None:
    fields = NormalizedEvent.DESCRIPTOR.oneofs_by_name["payload"].fields
    assert {snake_case(each.name): each.number for each in PAYLOADS} == {
        field.name: field.number for field in fields
    }


def test_every_message_that_is_mapped_becomes_one_of_them() -> None:
    mapped = {str(cls.__struct_config__.tag) for cls in get_args(AnyMessage)}
    assert mapped == {data_type for each in PAYLOADS for data_type in each.data_types}


def test_silver_has_a_table_for_each() -> None:
    assert {each.payload for each in RECORDS} == {snake_case(each.name) for each in PAYLOADS}


def test_the_fixtures_of_the_mapping_show_every_type() -> None:
    shown = {path.stem for path in (ROOT / "tests/fixtures/normalized").glob("*.yaml")}
    assert shown == {data_type for each in PAYLOADS for data_type in each.data_types}


def test_the_documentation_names_every_case() -> None:
    text = (ROOT / "docs/back-ends.md").read_text()
    assert [each.name for each in PAYLOADS if f"`{each.name}`" not in text] == []


def test_the_hook_refuses_the_meta_that_the_sidecar_writes() -> None:
    settings = ROOT / "client/node/dist/cjs/tardis-machine/settings.js"
    assert settings.exists(), "the Node client is not built; `make test` and `make test-fast` do that"
    printed = subprocess.run(
        ["node", "-p", f"JSON.stringify(require({json.dumps(str(settings))}).SIDECAR_META)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert frozenset(json.loads(printed.stdout)) == META_OF_SIDECAR


def test_the_hook_knows_the_codes_of_errors() -> None:
    source = (ROOT / "client/node/src/tardis-machine/response-stream.ts").read_text()
    (codes,) = re.findall(r"type ErrorCode = (.*);", source)
    known = [name.removeprefix("ERROR_CODE_").lower() for name in ErrorCode.keys()[1:]]
    assert re.findall(r"'(\w+)'", codes) == known
