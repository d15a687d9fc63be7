"""Kafka, by Spark's own connector.

The connector is no part of PySpark. Give it to `spark-submit` by `--packages` with `PACKAGE`, or name a
folder of its jars (the option `jars`).

Options: `brokers`, `topics` (with commas) or `pattern` (a regular expression); `start` (`earliest`, `latest`
or offsets as JSON, `{"topic": {"0": 42}}`), `maxRecordsPerBatch`, `partitions`, `onDataLoss`;
`propertiesFile`, `jars`.

That file holds settings of Kafka's consumer (`security.protocol`, `sasl.jaas.config`,
`ssl.truststore.location`, …). Spark gets references to them, which Kafka's client replaces where it connects,
so no plan or log shows a value; the file must be there on every worker, under the same name.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote

import pyarrow as pa
import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from bronze_pipeline.sources.base import Bus, OptionError, SourceOptions
from bronze_pipeline.sources.flags import add_flags, given_options, with_port
from bronze_pipeline.sources.kafka.losses import losses, planned

NAME = "bronze.kafka"
PACKAGE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
DEFAULT_PORT = 9092
FLAGS = {
    "topic_pattern": ("REGEX", "topics by pattern, instead of names in the URL"),
    "properties_file": ("FILE", "settings of Kafka's consumer: TLS, SASL and so on"),
    "jars": ("FOLDER", f"jars of {PACKAGE}, where spark-submit does not bring it"),
}
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
COLUMNS = (
    "topic as destination",
    "cast(partition as string) as bus_partition",
    "cast(offset as string) as bus_position",
    "value",
    "cast(null as string) as loss",
    "cast(null as string) as receipt",
)


class KafkaBus(Bus):
    """Kafka on the command line."""

    name = "kafka"
    schemes = ("kafka",)
    url_form = "kafka://host:9092,host2:9092/topic,topic2"
    subject = ("topics", "pattern")

    def add_flags(self, parser: argparse.ArgumentParser) -> None:
        add_flags(parser, self.name, "Kafka", FLAGS)

    def options(self, url: SplitResult, flags: argparse.Namespace) -> dict[str, str]:
        topics, pattern = unquote(url.path.strip("/")), flags.kafka_topic_pattern
        if "@" in url.netloc:
            raise OptionError("--from: holds credentials. Give --kafka-properties-file.")
        if not url.netloc or url.query:
            raise OptionError(f"--from: name the brokers and topics, as in {self.url_form}.")
        if bool(topics) == (pattern is not None):
            raise OptionError(
                f"--from: name topics, as in {self.url_form}, or give --kafka-topic-pattern; one of the two."
            )
        brokers = ",".join(with_port(host, DEFAULT_PORT) for host in url.netloc.split(",") if host)
        chosen = {"topics": topics} if topics else {"pattern": pattern}
        more = given_options(flags, self.name, ("properties_file", "jars"))
        return {"brokers": brokers, **chosen, **more}

    def check(self, options: Mapping[str, str]) -> None:
        connector_options(options)
        self.jars(options)

    def jars(self, options: Mapping[str, str]) -> Sequence[Path]:
        folder = SourceOptions(NAME, options).text("jars")
        if folder is None:
            return ()
        jars = sorted(Path(folder).absolute().glob("*.jar"))
        if not jars or "," in str(jars[0].parent):
            raise OptionError(
                f"{NAME}: 'jars' is '{folder}', but must be a folder with jars, without a comma in its path."
            )
        return jars

    def stream(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        try:
            reader = spark.readStream.format("kafka").options(**connector_options(options))
            return reader.load().selectExpr(*COLUMNS)
        except AnalysisException as error:
            if "Failed to find data source" not in str(error):
                raise
            raise OptionError(
                "Kafka: Spark has no connector for it. Start the job by spark-submit with"
                f" --packages {PACKAGE}, or give a folder of its jars by --kafka-jars."
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
        what = "its certificates" if found["kind"] == "Ssl" else "the user, its password and its rights"
        return f"Kafka refuses us ({found['reason']}): check {what} in --kafka-properties-file."

    def watches(self, options: Mapping[str, str]) -> bool:
        return SourceOptions(NAME, options).goes_on_after_loss

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
    options = SourceOptions(NAME, given)
    topics, pattern = options.text("topics"), options.text("pattern")
    if (topics is None) == (pattern is None):
        raise OptionError(f"{NAME}: give 'topics' or 'pattern'.")
    return {
        "kafka.bootstrap.servers": options.required("brokers"),
        **({"subscribe": _topics(topics)} if topics else {"subscribePattern": pattern or ""}),
        "startingOffsets": _start(options.start),
        "maxOffsetsPerTrigger": str(options.max_records),
        "minPartitions": str(options.partitions),
        "failOnDataLoss": str(not options.goes_on_after_loss).lower(),
        **_references(options.text("propertiesFile")),
    }


def _topics(text: str) -> str:
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if not TOPIC.fullmatch(name):
            raise OptionError(f"{NAME}: 'topics' has '{name}', which is no topic's name.")
    return ",".join(names)


def _start(text: str) -> str:
    if text in {"earliest", "latest"}:
        return text
    try:
        offsets = json.loads(text)
        valid = isinstance(offsets, dict) and all(isinstance(each, dict) for each in offsets.values())
    except ValueError:
        valid = False
    if not valid:
        raise OptionError(
            f"{NAME}: 'start' is '{text}', but must be earliest, latest or offsets such as"
            ' {"topic": {"0": 42}}.'
        )
    return text


def _references(path: str | None) -> dict[str, str]:
    """Return a setting for each property of a file, which names the file instead of the value."""
    if path is None:
        return {}
    file = Path(path).absolute()
    if set(":}") & set(str(file)):
        raise OptionError(f"{NAME}: 'propertiesFile' must have no ':' and no '}}' in its path.")
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise OptionError(f"{NAME}: 'propertiesFile': {file} cannot be read: {error.strerror}.") from error
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
