"""Hadoop's connectors, by which Spark keeps a checkpoint in a store: how they are found and set up.

The options of `tables/storage.py` and the AWS tools' variables are translated, so that a checkpoint needs
nothing that the tables do not need, except for the connector's jars.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bronze_cli.program import CommandFailed
from pyspark.sql import SparkSession

from bronze_pipeline.tables.storage import HADOOP, STORES, given_options, s3_options

# The version of Hadoop in PySpark 4.2.
VERSION = "3.5.0"


class Connector(NamedTuple):
    """What lets Spark reach a kind of store."""

    scheme: str
    """As Hadoop spells it."""
    file_system: str
    package: str


CONNECTORS: Mapping[str, Connector] = {
    "s3": Connector(
        "s3a", "org.apache.hadoop.fs.s3a.S3AFileSystem", f"org.apache.hadoop:hadoop-aws:{VERSION}"
    ),
    "gs": Connector(
        "gs", "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem", f"org.apache.hadoop:hadoop-gcp:{VERSION}"
    ),
    "abfss": Connector(
        "abfss",
        "org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem",
        f"org.apache.hadoop:hadoop-azure:{VERSION}",
    ),
    "hdfs": Connector(
        "hdfs",
        "org.apache.hadoop.hdfs.DistributedFileSystem",
        f"org.apache.hadoop:hadoop-client-api:{VERSION}",
    ),
}
# Where the AWS tools find credentials that Hadoop's connector does not look for by itself.
OTHER_CREDENTIALS = ("AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
ALL_CREDENTIALS = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"


def prepare(spark: SparkSession, checkpoint: str) -> str:
    """Let Spark reach a checkpoint, and return its URL as Spark spells it; raise CommandFailed."""
    url = urlsplit(checkpoint)
    if url.scheme not in STORES:
        return checkpoint
    connector = CONNECTORS[STORES[url.scheme].scheme]
    configuration: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - there is no other way
    if configuration.getClassByNameOrNull(connector.file_system) is None:
        raise CommandFailed(
            f"Spark has no connector for {connector.scheme}://. Start the job through spark-submit with"
            f" --packages {connector.package}, or name a folder with its jars in --storage-jars."
        )
    configuration.set(f"fs.{connector.scheme}.impl", connector.file_system)
    for key, value in settings(checkpoint, given_options(), os.environ).items():
        configuration.set(key, value)
    return url._replace(scheme=connector.scheme).geturl()


def settings(checkpoint: str, given: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return Hadoop's settings for a checkpoint."""
    url = urlsplit(checkpoint)
    match STORES[url.scheme].scheme:
        case "s3":
            made = _s3(given, environment)
        case "gs":
            made = _google(given, environment)
        case "abfss":
            made = _azure(given, environment, url.hostname or "")
        case _:
            made = ((key, value) for key, value in given.items() if key.startswith("dfs."))
    return dict(made) | {key: value for key, value in given.items() if key.startswith(HADOOP)}


def _s3(given: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    # Files of a checkpoint are small; what reads ahead in large ones would need one more library.
    yield "fs.s3a.input.stream.type", "classic"
    options = s3_options(given, environment)
    names = {
        "AWS_ENDPOINT_URL": "fs.s3a.endpoint",
        "AWS_ACCESS_KEY_ID": "fs.s3a.access.key",
        "AWS_SECRET_ACCESS_KEY": "fs.s3a.secret.key",
        "AWS_SESSION_TOKEN": "fs.s3a.session.token",
    }
    yield from ((setting, options[name]) for name, setting in names.items() if options.get(name))
    regions = ("AWS_REGION", "AWS_DEFAULT_REGION")
    found = [place[name] for place in (options, environment) for name in regions if place.get(name)]
    if found:
        yield "fs.s3a.endpoint.region", found[0]
    in_path = options.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false").lower() != "true"
    if "AWS_ENDPOINT_URL" in options:
        yield "fs.s3a.path.style.access", str(in_path).lower()
    if "AWS_ACCESS_KEY_ID" not in options and any(environment.get(name) for name in OTHER_CREDENTIALS):
        yield "fs.s3a.aws.credentials.provider", ALL_CREDENTIALS


def _google(given: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    names = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_APPLICATION_CREDENTIALS")
    found = [place[name] for place in (given, environment) for name in names if place.get(name)]
    if found:
        yield "fs.gs.auth.type", "SERVICE_ACCOUNT_JSON_KEYFILE"
        yield "fs.gs.auth.service.account.json.keyfile", found[0]


def _azure(given: Mapping[str, str], environment: Mapping[str, str], host: str) -> Iterator[tuple[str, str]]:
    def option(*names: str) -> str | None:
        every = [f"{start}{name}" for name in names for start in ("AZURE_STORAGE_", "AZURE_")]
        return next(
            (place[name] for place in (given, environment) for name in every if place.get(name)), None
        )

    account_key, sas = option("ACCOUNT_KEY", "ACCESS_KEY"), option("SAS_TOKEN", "SAS_KEY")
    client, secret = option("CLIENT_ID"), option("CLIENT_SECRET")
    tenant = option("TENANT_ID", "AUTHORITY_ID")
    if account_key:
        yield f"fs.azure.account.key.{host}", account_key
    elif sas:
        yield f"fs.azure.account.auth.type.{host}", "SAS"
        yield f"fs.azure.sas.fixed.token.{host}", sas
    elif client and secret and tenant:
        oauth = f"fs.azure.account.oauth2.client.{{}}.{host}"
        yield f"fs.azure.account.auth.type.{host}", "OAuth"
        yield (
            f"fs.azure.account.oauth.provider.type.{host}",
            "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
        )
        yield oauth.format("id"), client
        yield oauth.format("secret"), secret
        yield oauth.format("endpoint"), f"https://login.microsoftonline.com/{tenant}/oauth2/token"
