"""Kafka, through Spark's own connector.

The connector is not part of PySpark. Pass `PACKAGE` to `spark-submit` with `--packages`, or name a folder
with its jars (the option `jars`).

Options: `brokers`, `topics` (with commas) or `topicPattern` (a regular expression); `start` (`earliest`,
`latest` or offsets as JSON, `{"topic": {"0": 42}}`), `maxRecordsPerBatch`, `partitions`, `onDataLoss`;
`propertiesFile`, `jars`.

That file holds settings of Kafka's consumer (`security.protocol`, `sasl.jaas.config`,
`ssl.truststore.location`, …). Spark gets references to them, which Kafka's client resolves where it connects,
so no plan or log shows a value; every worker must have the file, under the same name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote

import pyarrow as pa
import pyspark
from bronze_cli.options import option
from bronze_cli.problems import Fault, shorten
from bronze_cli.values import File, ListOf, Scalar, Text
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from bronze_pipeline.jars import JarFolder, jars_in
from bronze_pipeline.sources.base import Bus
from bronze_pipeline.sources.kafka.losses import losses, planned
from bronze_pipeline.sources.options import OptionError, Start, StreamOptions, hosts, read_options

NAME = "bronze.kafka"
PACKAGE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
DEFAULT_PORT = 9092
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
FILE_PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"
# What the connector says, as Spark quotes it.
DATA_LOSS = re.compile(
    r"Some data may have been lost\b.*?Reason:\s*(?P<reason>.+?)\.?\s*(?:SQLSTATE|===|\tat |$)", re.DOTALL
)
REFUSAL = re.compile(
    r"org\.apache\.kafka\.common\.errors\."
    r"(?P<kind>Sasl|Ssl|\w*Authorization|UnsupportedSaslMechanism|IllegalSaslState)\w*Exception:"
    r"\s*(?P<reason>.+?)\.?\s*(?:SQLSTATE|$)",
    re.MULTILINE,
)
# Numbers as they are, and nothing that is always NULL: Java hands rows over value by value.
COLUMNS = ("topic as destination", "partition as bus_partition", "offset as bus_position", "value")


class TopicName(Scalar):
    """A topic's name."""

    metavar = "TOPIC"

    def read(self, text: str) -> str | list[Fault]:
        return text if TOPIC.fullmatch(text) else [Fault(f"'{shorten(text)}' is not a topic name.")]


class OffsetStart(Start):
    """Offsets, or either end of the topics."""

    def is_position(self, text: str) -> bool:
        try:
            offsets = json.loads(text)
        except ValueError:
            return False
        return isinstance(offsets, dict) and all(isinstance(each, dict) for each in offsets.values())

    def choices(self) -> str:
        return 'earliest, latest or offsets such as {"topic": {"0": 42}}'


@dataclass(frozen=True)
class KafkaAccess:
    """How to reach the brokers, and more about what to read."""

    topic_pattern: str | None = option(Text(), "Regular expression for topics, instead of names in the URL.")
    properties_file: Path | None = option(
        File(), "File with settings of Kafka's consumer: TLS, SASL and so on."
    )
    jars: Path | None = option(
        JarFolder(), f"Folder with the jars of {PACKAGE}, if spark-submit does not provide it."
    )


@dataclass(frozen=True)
class KafkaOptions(KafkaAccess, StreamOptions):
    """Everything about topics and how to reach them."""

    brokers: tuple[str, ...] = option(ListOf(Text()), "Brokers to contact first.", required=True)
    topics: tuple[str, ...] | None = option(ListOf(TopicName()), "Topics to read.")
    start: str = option(
        OffsetStart(), "Where a new checkpoint begins: earliest, latest or a position.", default="earliest"
    )

    def faults(self) -> Iterator[tuple[str, Fault]]:
        if (self.topics is None) == (self.topic_pattern is None):
            yield "topics", Fault("name either topics or a pattern.")
        if self.properties_file and set(":}") & set(str(self.properties_file.absolute())):
            yield "properties_file", Fault("must not have ':' or '}' in its path.")


class KafkaBus(Bus):
    """Kafka on the command line."""

    name = "kafka"
    schemes = ("kafka",)
    url_form = "kafka://host:9092,host2:9092/topic,topic2"
    options = KafkaOptions
    access = KafkaAccess
    subject = ("topics", "topicPattern")

    def from_url(self, url: SplitResult) -> dict[str, str] | Fault:
        topics = unquote(url.path.strip("/"))
        if "@" in url.netloc:
            return Fault("holds credentials.", "Use --kafka-properties-file.")
        if not url.netloc or url.query:
            return Fault("does not name the brokers and topics.", f"Write {self.url_form}.")
        brokers = ",".join(hosts(url.netloc, DEFAULT_PORT))
        return {"brokers": brokers, **({"topics": topics} if topics else {})}

    def jars(self, options: Mapping[str, str]) -> Sequence[Path]:
        return jars_in(read_options(KafkaOptions, NAME, options).jars)

    def stream(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        try:
            reader = spark.readStream.format("kafka").options(**connector_options(options))
            return reader.load().selectExpr(*COLUMNS)
        except AnalysisException as error:
            if "Failed to find data source" not in str(error):
                raise
            raise OptionError(
                "Spark has no connector for Kafka. Start the job through spark-submit with"
                f" --packages {PACKAGE}, or name a folder with its jars in --kafka-jars."
            ) from error

    def loss_in(self, error: str) -> str | None:
        found = DATA_LOSS.search(error)
        if found is None:
            return None
        return f"Kafka no longer has records that were not read: {' '.join(found['reason'].split())}"

    def refusal_in(self, error: str) -> str | None:
        found = REFUSAL.search(error)
        if found is None:
            return None
        what = "its certificates" if found["kind"] == "Ssl" else "the user, its password and its permissions"
        return f"Kafka refuses us ({found['reason']}): check {what} in --kafka-properties-file."

    def watches(self, options: Mapping[str, str]) -> bool:
        return read_options(KafkaOptions, NAME, options).goes_on_after_loss

    def losses(
        self, spark: SparkSession, checkpoint: str, batch: int, firsts: Mapping[tuple[str, str], int]
    ) -> Sequence[pa.RecordBatch]:
        return losses(*planned(spark, checkpoint, batch), firsts)

    def lag(self, end: Mapping[str, Any], latest: Mapping[str, Any]) -> int | None:
        pairs = [
            (int(newest), int(end.get(topic, {}).get(partition, 0)))
            for topic, partitions in latest.items()
            for partition, newest in partitions.items()
        ]
        return sum(max(0, newest - read) for newest, read in pairs)


def connector_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Spark's connector; raise OptionError."""
    options = read_options(KafkaOptions, NAME, given)
    topics = {"subscribe": ",".join(options.topics)} if options.topics else {}
    return {
        "kafka.bootstrap.servers": ",".join(options.brokers),
        **(topics or {"subscribePattern": options.topic_pattern or ""}),
        "startingOffsets": options.start,
        "maxOffsetsPerTrigger": str(options.max_records_per_batch),
        "minPartitions": str(options.partitions),
        "failOnDataLoss": str(not options.goes_on_after_loss).lower(),
        **_references(options.properties_file),
    }


def _references(path: Path | None) -> dict[str, str]:
    """Return a setting for each property in a file; it refers to the file instead of holding the value."""
    if path is None:
        return {}
    file = path.absolute()
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise OptionError(f"--kafka-properties-file: {file} cannot be read: {error.strerror}.") from error
    names = _names(lines)
    references = {f"kafka.{name}": f"${{file:{file}:{name}}}" for name in names}
    providers = {"kafka.config.providers": "file", "kafka.config.providers.file.class": FILE_PROVIDER}
    return providers | references


def _names(lines: list[str]) -> list[str]:
    """Return the keys of a Java properties file."""
    names = []
    goes_on = False
    for line in lines:
        text = line.strip()
        if not goes_on and text and text[0] not in "#!":
            names.append(re.split(r"\s*[=:]\s*|\s+", text, maxsplit=1)[0])
        goes_on = text.endswith("\\") and (goes_on or text[:1] not in {"#", "!"})
    return names
