"""Places of tables and checkpoints in stores, and the options of stores: what becomes of them without any."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from bronze_pipeline.commands import bronze
from bronze_pipeline.running.folder_markers import needless
from bronze_pipeline.running.hadoop import CONNECTORS, settings
from bronze_pipeline.tables.lake import Lake
from bronze_pipeline.tables.storage import (
    STORES,
    VARIABLE,
    is_remote,
    parsed,
    problem_with,
    s3_options,
    storage_options,
)
from pipeline_jobs import PROGRAM

AZURE = "abfss://lake@account.dfs.core.windows.net/a"
HOST = "account.dfs.core.windows.net"
FROM = ["--from", "nats://localhost/S"]


@pytest.fixture(autouse=True)
def no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test no options of the machine's, and the next one none of this test's."""
    monkeypatch.setenv(VARIABLE, "")
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("place", "url"),
    [
        ("s3://bucket/lake/", "s3://bucket/lake"),
        ("s3a://bucket/lake", "s3://bucket/lake"),
        ("gs://bucket", "gs://bucket"),
        (AZURE, AZURE),
        ("hdfs://name:8020/lake", "hdfs://name:8020/lake"),
    ],
)
def test_a_place_is_spelled_as_delta_rs_does(place: str, url: str) -> None:
    assert is_remote(place)
    assert problem_with(place) is None
    assert Lake(place).url == url
    assert Lake(place).problem() is None


def test_every_store_has_a_connector() -> None:
    assert {store.scheme for store in STORES.values()} == set(CONNECTORS)


@pytest.mark.parametrize(
    "place", ["s3://", "gs:///lake", "hdfs:///lake", "s3://bucket/lake?x=1", "abfss://host/a"]
)
def test_an_incomplete_place_is_refused(place: str) -> None:
    assert "is not complete. Write " in (problem_with(place) or "")


@pytest.mark.parametrize("place", ["s3://key:secret@bucket/a", "gs://me@bucket/a", "abfss://c:secret@host/a"])
def test_credentials_in_a_place_are_refused(place: str) -> None:
    problem = problem_with(place) or ""
    assert problem.startswith("holds credentials")
    assert "secret" not in problem


def test_a_checkpoint_is_beside_the_tables_wherever_they_are() -> None:
    chosen = bronze.plan([*FROM, "--to", "s3a://bucket/lake"])
    assert chosen.checkpoint == "s3://bucket/lake/_checkpoints/bronze-nats-S"
    assert (
        bronze.plan([*FROM, "--to", "s3://b/lake", "--checkpoint", "hdfs://n/c"]).checkpoint == "hdfs://n/c"
    )


# -- options


def test_options_are_lines_of_a_file_or_flags(tmp_path: Path) -> None:
    file = tmp_path / "options"
    file.write_text("# for the lake\naws_secret_access_key = a=b\n\nfs.s3a.connection.maximum=7\n")
    bronze.plan(
        [*FROM, "--to", "s3://b/l", "--storage-option-file", str(file), "--storage-option", "AWS_REGION=x"]
    )
    assert parsed(os.environ[VARIABLE]) == {
        "AWS_SECRET_ACCESS_KEY": "a=b",
        "fs.s3a.connection.maximum": "7",
        "AWS_REGION": "x",
    }
    assert storage_options("s3://b/l") == {
        "AWS_SECRET_ACCESS_KEY": "a=b",
        "AWS_REGION": "x",
        "AWS_CONDITIONAL_PUT": "etag",
    }
    assert storage_options("gs://b/l") == {}
    assert storage_options("file:///l") is None


def test_a_plan_shows_no_option(tmp_path: Path) -> None:
    chosen = bronze.plan([*FROM, "--to", "s3://b/l", "--storage-option", "AWS_REGION=s3cr3t-word"])
    assert "s3cr3t-word" not in repr(chosen)


def test_an_endpoint_brings_what_it_needs() -> None:
    assert s3_options({}, {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "https://b"}) == {
        "AWS_ENDPOINT_URL": "https://b",
        "AWS_ALLOW_HTTP": "false",
        "AWS_REGION": "us-east-1",
        "AWS_CONDITIONAL_PUT": "etag",
    }
    assert s3_options({"AWS_ENDPOINT_URL": "http://a"}, {"AWS_REGION": "r"}) == {
        "AWS_ENDPOINT_URL": "http://a",
        "AWS_ALLOW_HTTP": "true",
        "AWS_CONDITIONAL_PUT": "etag",
    }


# -- for Spark

CLASSIC = {"fs.s3a.input.stream.type": "classic"}


@pytest.mark.parametrize(
    ("place", "given", "environment", "expected"),
    [
        ("s3://b/c", {}, {}, CLASSIC),
        (
            "s3a://b/c",
            {"AWS_ENDPOINT_URL": "http://a", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"},
            {"AWS_REGION": "r", "AWS_PROFILE": "p"},
            CLASSIC
            | {
                "fs.s3a.endpoint": "http://a",
                "fs.s3a.access.key": "k",
                "fs.s3a.secret.key": "s",
                "fs.s3a.endpoint.region": "r",
                "fs.s3a.path.style.access": "true",
            },
        ),
        (
            "s3://b/c",
            {"AWS_SESSION_TOKEN": "t", "fs.s3a.connection.maximum": "7"},
            {"AWS_PROFILE": "p"},
            CLASSIC
            | {
                "fs.s3a.session.token": "t",
                "fs.s3a.connection.maximum": "7",
                "fs.s3a.aws.credentials.provider": (
                    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
                ),
            },
        ),
        (
            "gs://b/c",
            {},
            {"GOOGLE_APPLICATION_CREDENTIALS": "/key"},
            {
                "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
                "fs.gs.auth.service.account.json.keyfile": "/key",
            },
        ),
        (AZURE, {"AZURE_STORAGE_ACCOUNT_KEY": "k"}, {}, {f"fs.azure.account.key.{HOST}": "k"}),
        (
            AZURE,
            {},
            {"AZURE_STORAGE_SAS_TOKEN": "t"},
            {f"fs.azure.account.auth.type.{HOST}": "SAS", f"fs.azure.sas.fixed.token.{HOST}": "t"},
        ),
        (
            AZURE,
            {"AZURE_CLIENT_ID": "i", "AZURE_CLIENT_SECRET": "s"},
            {"AZURE_TENANT_ID": "t"},
            {
                f"fs.azure.account.auth.type.{HOST}": "OAuth",
                f"fs.azure.account.oauth.provider.type.{HOST}": (
                    "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"
                ),
                f"fs.azure.account.oauth2.client.id.{HOST}": "i",
                f"fs.azure.account.oauth2.client.secret.{HOST}": "s",
                f"fs.azure.account.oauth2.client.endpoint.{HOST}": (
                    "https://login.microsoftonline.com/t/oauth2/token"
                ),
            },
        ),
        ("hdfs://n/c", {"dfs.nameservices": "n"}, {}, {"dfs.nameservices": "n"}),
    ],
)
def test_hadoop_gets_the_same_options(
    place: str, given: dict[str, str], environment: dict[str, str], expected: dict[str, str]
) -> None:
    assert settings(place, given, environment) == expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([], []),
        (["c/"], []),
        (["c/", "c/0"], ["c/"]),
        (["c/o/0", "c/", "c/o/", "c/p/", "c/q"], ["c/", "c/o/"]),
    ],
)
def test_markers_of_folders_with_something_in_them_are_needless(keys: list[str], expected: list[str]) -> None:
    assert needless(keys) == expected


# -- secrets on the command line


def test_a_secret_is_not_in_the_list_of_processes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        flags = [
            *("--storage-option", f"AWS_ENDPOINT_URL=http://127.0.0.1:{silent.getsockname()[1]}"),
            *(
                "--storage-option",
                "AWS_ACCESS_KEY_ID=me",
                "--storage-option=AWS_SECRET_ACCESS_KEY=s3cr3t-word",
            ),
        ]
        process = subprocess.Popen([PROGRAM, "verify", "--table", "s3://b/bronze", *flags])
        try:
            silent.settimeout(60)
            # It asks the store, so it has read its options.
            silent.accept()[0].close()
            command = Path(f"/proc/{process.pid}/cmdline").read_text()
            assert "--storage-option\0AWS_ACCESS_KEY_ID=me" in command
            assert "s3cr3t-word" not in command
        finally:
            process.kill()
            process.wait()


def test_spark_submit_cannot_hide_a_secret() -> None:
    flags = ["--table", "s3://b/bronze", "--storage-option", "AWS_SECRET_ACCESS_KEY=s3cr3t-word"]
    done = subprocess.run(
        [PROGRAM, "verify", *flags],
        env=os.environ | {"PYSPARK_GATEWAY_PORT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--storage-option: holds a secret" in done.stderr
    assert "Use --storage-option-file" in done.stderr
    assert "s3cr3t-word" not in done.stderr
