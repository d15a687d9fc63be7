"""What is generated for the chart from its values and from the sidecar's options."""

from __future__ import annotations

from pathlib import Path

import chart
import jsonschema
import pytest
import yaml
from charts import CASES, CHART

VALUES = """\
# -- How many.
number: 3
group:
  # -- Anything
  # at all.
  open: {}
  inner:
    # -- Some | text.
    text: a|b
"""


@pytest.fixture
def values(tmp_path: Path) -> list[chart.Value]:
    file = tmp_path / "values.yaml"
    file.write_text(VALUES)
    return list(chart.read(file))


def test_documented_values_are_found_with_their_defaults(values: list[chart.Value]) -> None:
    assert values == [
        chart.Value("number", 3, "How many."),
        chart.Value("group.open", {}, "Anything at all."),
        chart.Value("group.inner.text", "a|b", "Some | text."),
    ]


def test_a_value_without_a_comment_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("group:\n  # not for users\n  text: x\n")
    with pytest.raises(ValueError, match=r"group\.text has no comment"):
        list(chart.read(file))


def test_the_schema_is_closed_but_for_values_that_are_objects(values: list[chart.Value]) -> None:
    schema = chart.values_schema(values)
    jsonschema.validate({"number": 1, "group": {"open": {"any": 1}, "inner": {"text": ""}}}, schema)
    jsonschema.validate({"global": {"of": "all charts"}}, schema)
    refused: list[dict[str, object]] = [
        {"number": "1"},
        {"nmber": 1},
        {"group": {"inner": {"texts": ""}}},
        {"group": {"open": []}},
    ]
    for wrong in refused:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_the_table_shows_defaults_and_keeps_its_columns(values: list[chart.Value]) -> None:
    readme = chart.with_table(f"before\n{chart.BEGIN}\nold\n{chart.END}\nafter\n", values)
    assert readme == (
        f"before\n{chart.BEGIN}\n\n"
        "| value | default | meaning |\n"
        "| --- | --- | --- |\n"
        "| `number` | `3` | How many. |\n"
        "| `group.open` |  | Anything at all. |\n"
        "| `group.inner.text` | `a\\|b` | Some \\| text. |\n"
        f"\n{chart.END}\nafter\n"
    )


@pytest.mark.parametrize("case", CASES)
def test_the_values_of_every_case_fit_the_schema(case: str) -> None:
    schema = chart.values_schema(list(chart.read(CHART / "values.yaml")))
    jsonschema.validate(yaml.safe_load(CASES[case].read_text()), schema)


def test_every_secret_of_the_sidecar_is_known_as_one() -> None:
    assert chart.secret_options() == {
        "kafka": ["sasl_password", "oauth_client_secret", "schema_registry_auth_password"],
        "nats": ["pass", "token"],
        "kinesis": ["access_key", "secret_key", "session_token"],
        "redis": ["url", "password", "sentinel_password"],
        "sqs": ["access_key", "secret_key", "session_token"],
    }
