"""What Spark's connector for Kafka is told; test_source_streams.py reads a real broker by it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from bronze_pipeline.decoding.schema import ARRIVED, as_arrived
from bronze_pipeline.sources.kafka.bus import KafkaBus, connector_options
from bronze_pipeline.sources.kafka.losses import losses
from bronze_pipeline.sources.options import OptionError
from source_readers import problems_of, source_options

BASE = {"brokers": "host:9092", "topics": "bronze"}


def test_options_become_those_of_the_connector() -> None:
    given = {
        "brokers": "a:1,b:2",
        "topics": "bronze.trades, bronze.books",
        "start": "latest",
        "maxRecordsPerBatch": "1000",
        "partitions": "3",
        "onDataLoss": "continue",
    }
    assert connector_options(given) == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "subscribe": "bronze.trades,bronze.books",
        "startingOffsets": "latest",
        "maxOffsetsPerTrigger": "1000",
        "minPartitions": "3",
        "failOnDataLoss": "false",
    }


def test_rows_of_the_connector_become_those_of_every_source() -> None:
    given = pa.RecordBatch.from_pydict(
        {
            "destination": pa.array(["bronze.trades"]),
            "bus_partition": pa.array([3], pa.int32()),
            "bus_position": pa.array([7], pa.int64()),
            "value": pa.array([b"envelope"]),
        }
    )
    rows = as_arrived(given)
    assert rows.schema == ARRIVED
    place = {"destination": "bronze.trades", "bus_partition": "3", "bus_position": "7"}
    assert rows.to_pylist() == [{**place, "value": b"envelope", "loss": None, "receipt": None}]


def test_data_loss_fails_unless_the_operator_chose_otherwise() -> None:
    assert connector_options(BASE)["failOnDataLoss"] == "true"
    assert connector_options(BASE)["startingOffsets"] == "earliest"


def test_offsets_and_patterns() -> None:
    offsets = '{"bronze": {"0": 42, "1": -2}}'
    made = connector_options({"brokers": "a:1", "topicPattern": r"bronze\..*", "start": offsets})
    assert made["startingOffsets"] == offsets
    assert made["subscribePattern"] == r"bronze\..*"
    assert "subscribe" not in made


def test_settings_of_a_file_are_named_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text(
        "# how to log in\n"
        "security.protocol=SASL_SSL\n"
        "\n"
        "sasl.mechanism : PLAIN\n"
        "sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '    username="app" password="correct-horse";\n'
        "ssl.truststore.type PEM\n"
    )
    made = connector_options({**BASE, "propertiesFile": str(file)})
    assert {name: value for name, value in made.items() if str(file) in value} == {
        "kafka.security.protocol": f"${{file:{file}:security.protocol}}",
        "kafka.sasl.mechanism": f"${{file:{file}:sasl.mechanism}}",
        "kafka.sasl.jaas.config": f"${{file:{file}:sasl.jaas.config}}",
        "kafka.ssl.truststore.type": f"${{file:{file}:ssl.truststore.type}}",
    }
    assert made["kafka.config.providers"] == "file"
    assert "correct-horse" not in str(made)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"brokers": ""}, "bronze.kafka: brokers: is missing"),
        ({"topics": ""}, "topics: name either topics or a pattern"),
        ({"topicPattern": "x.*"}, "topics: name either topics or a pattern"),
        ({"topics": "a b"}, "topics: 'a b' is not a topic name"),
        (
            {"start": "first"},
            "start: 'first' is not a valid start. Use earliest, latest or offsets such",
        ),
        ({"start": "[1]"}, "start: '\\[1\\]' is not a valid start"),
        ({"propertiesFile": "/no/such/file"}, "propertiesFile: the file '/no/such/file' does not exist"),
        ({"jars": "/no/such/folder"}, "jars: '/no/such/folder' is not a folder"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        connector_options({**BASE, **options})


def test_a_file_must_have_a_path_that_kafka_can_name(tmp_path: Path) -> None:
    file = tmp_path / "odd:name"
    file.touch()
    with pytest.raises(OptionError, match="propertiesFile: must not have ':' or '}' in its path"):
        connector_options({**BASE, "propertiesFile": str(file)})


def test_a_folder_without_jars_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="jars: must be a folder with jars"):
        KafkaBus().jars({**BASE, "jars": str(tmp_path)})


def test_the_command_line_becomes_options(tmp_path: Path) -> None:
    file, jar = tmp_path / "secret", tmp_path / "kafka.jar"
    file.touch()
    jar.touch()
    flags = ("--kafka-properties-file", str(file), "--kafka-jars", str(tmp_path), "--partitions", "3")
    assert source_options("kafka://a,b:9093,[::1]/bronze,control", *flags) == {
        "brokers": "a:9092,b:9093,[::1]:9092",
        "topics": "bronze,control",
        "propertiesFile": str(file),
        "jars": str(tmp_path),
        "partitions": "3",
    }
    assert source_options("kafka://a", "--kafka-topic-pattern", r"bronze\..*") == {
        "brokers": "a:9092",
        "topicPattern": r"bronze\..*",
    }


@pytest.mark.parametrize(
    ("url", "arguments", "problem"),
    [
        ("kafka:///topic", (), "--from: does not name the brokers and topics. Write kafka://host:9092"),
        ("kafka://host", (), "topics: name either topics or a pattern"),
        ("kafka://host/topic", ("--kafka-topic-pattern", "x"), "--from: name either topics or a pattern"),
        ("kafka://me:secret@host/topic", (), "--from: holds credentials. Use --kafka-properties-file."),
        ("kafka://host/topic", ("--kafka-jars", "/no/such"), "--kafka-jars: '/no/such' is not a folder."),
    ],
)
def test_a_wrong_command_line_is_named(url: str, arguments: tuple[str, ...], problem: str) -> None:
    said = problems_of(url, *arguments)
    assert problem in said
    assert "secret" not in said


def test_what_the_connector_says_of_losses_is_told_in_our_words() -> None:
    said = (
        "[STREAM_FAILED] Query ended: KafkaIllegalStateException: Some data may have been lost because they"
        " are not available in Kafka any more.\nSet failOnDataLoss to false.\nReason:\n"
        "Could not read records in offset [10, 15) for topic partition bronze-0\nwith consumer group g."
        " SQLSTATE: 22000\n=== Streaming Query ===\nmore"
    )
    assert KafkaBus().loss_in(said) == (
        "Kafka no longer has records that were not read: Could not read records in offset [10, 15) for topic"
        " partition bronze-0 with consumer group g"
    )
    assert KafkaBus().loss_in("Python worker failed to connect back.") is None


def test_offsets_that_did_not_come_are_lost() -> None:
    start = {"a": {"0": 10, "1": 5, "2": 3}, "b": {"0": 8}}
    end = {"a": {"0": 20, "1": 9, "2": 3}, "b": {"0": 2, "1": 4}}
    firsts = {("a", "0"): 15, ("b", "1"): 0}
    rows = [row for batch in losses(start, end, firsts) for row in batch.to_pylist()]
    assert [(row["destination"], row["bus_partition"], row["bus_position"], row["loss"]) for row in rows] == [
        ("a", "0", "10", "offsets 10 to 14 are no longer in partition 0 of the topic a"),
        ("a", "1", "5", "offsets 5 to 8 are no longer in partition 1 of the topic a"),
        (
            "b",
            "0",
            "8",
            "partition 0 of the topic b goes back from offset 8 to 2: it was recreated, or records were lost",
        ),
    ]


def test_lag_counts_offsets() -> None:
    latest = {"a": {"0": 10, "1": 4}, "b": {"0": 2}}
    assert KafkaBus().lag({"a": {"0": 7, "1": 4}}, latest) == 5
