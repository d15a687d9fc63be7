"""The stores in which tables and checkpoints may be: how a place is written, and how its store is reached.

A place is a local path or a URL with one of these schemes, for tables and checkpoints alike:

    s3://bucket/prefix (or s3a://), gs://bucket/prefix, abfss://container@account.dfs.core.windows.net/prefix,
    hdfs://host:port/path

delta-rs reaches all of them, for the tables' logs and, as a file system of Arrow's, for their files. It finds
credentials in the usual environment variables. Options with the same names take precedence; they are in one
variable of every process of a job (`VARIABLE`), so that no plan, log or list of processes has them. Spark
keeps its checkpoints through Hadoop's connectors: see `running/hadoop.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import pyarrow.fs

VARIABLE = "BRONZE_PIPELINE_STORAGE_OPTION"
"""Lines of KEY=VALUE."""


class Store(NamedTuple):
    """A kind of store."""

    form: str
    """What its URLs look like."""
    scheme: str
    """As delta-rs spells it."""
    options: tuple[str, ...]
    """What its options begin with."""


S3 = Store("s3://bucket/prefix", "s3", ("AWS_",))
STORES: Mapping[str, Store] = {
    "s3": S3,
    "s3a": S3,
    "gs": Store("gs://bucket/prefix", "gs", ("GOOGLE_",)),
    "abfss": Store("abfss://container@account.dfs.core.windows.net/prefix", "abfss", ("AZURE_",)),
    "hdfs": Store("hdfs://host:port/path", "hdfs", ("dfs.",)),
}
# Options of Hadoop alone.
HADOOP = "fs."


def is_remote(place: str) -> bool:
    return urlsplit(place).scheme not in {"", "file"}


def problem_with(place: str) -> str | None:
    """Return what is wrong with a URL, as far as can be told without asking its store."""
    url = urlsplit(place)
    store = STORES.get(url.scheme)
    if store is None:
        forms = dict.fromkeys(each.form for each in STORES.values())
        return f"no store has the scheme '{url.scheme}'. Use a path, or one of {', '.join(forms)}."
    if "@" in url.netloc and (store.scheme != "abfss" or ":" in url.netloc.partition("@")[0]):
        return "holds credentials. Give them as environment variables, or by --storage-option-file."
    if not url.hostname or url.query or url.fragment or (store.scheme == "abfss" and not url.username):
        return f"is not complete. Write {store.form}."
    return None


def delta_url(place: str) -> str:
    """Return a URL as delta-rs spells it."""
    url = urlsplit(place)
    return url._replace(scheme=STORES[url.scheme].scheme).geturl() if url.scheme in STORES else place


def parsed(text: str) -> dict[str, str]:
    """Return options from lines of KEY=VALUE; raise ValueError with the line's number, but not its text."""
    options = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"line {number} is not KEY=VALUE.")
        key = key.strip()
        known = [start for store in STORES.values() for start in store.options]
        name = key if key.startswith((HADOOP, "dfs.")) else key.upper()
        if not name.startswith((HADOOP, *known)):
            raise ValueError(
                f"no store takes the option in line {number}: it must begin with"
                f" {', '.join(dict.fromkeys(known))} or {HADOOP}"
            )
        options[name] = value.strip()
    return options


def given_options() -> dict[str, str]:
    """Return the options that were given to the job, for all stores."""
    return parsed(os.environ.get(VARIABLE, ""))


def storage_options(url: str) -> dict[str, str] | None:
    """Return the options that delta-rs needs for a URL; None if it needs none."""
    store = STORES.get(urlsplit(url).scheme)
    if store is None:
        return None
    options = {key: value for key, value in given_options().items() if key.startswith(store.options)}
    return s3_options(options, os.environ) if store is S3 else options


def s3_options(given: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return options of S3, completed by what follows from them and from the AWS tools' variables."""
    options = dict(given)
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    places = (options, environment)
    endpoint = next((place[name] for place in places for name in names if place.get(name)), None)
    options.pop("AWS_ENDPOINT_URL_S3", None)
    regions = ("AWS_REGION", "AWS_DEFAULT_REGION")
    if endpoint:
        options["AWS_ENDPOINT_URL"] = endpoint
        options.setdefault("AWS_ALLOW_HTTP", str(endpoint.startswith("http://")).lower())
        if not any(options.get(name) or environment.get(name) for name in regions):
            # Another server than Amazon's; most do not care.
            options["AWS_REGION"] = "us-east-1"
    # A commit is a file that must not exist yet: the store itself sees to that, without a table of locks.
    options.setdefault("AWS_CONDITIONAL_PUT", "etag")
    return options


def file_system(url: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """Return a file system of Arrow's for a URL, and the path on it."""
    parts = urlsplit(url)
    if parts.scheme not in STORES:
        system, path = pyarrow.fs.FileSystem.from_uri(url)
        return system, path.rstrip("/")
    return _object_store(delta_url(_root(parts)), os.environ.get(VARIABLE, "")), parts.path.strip("/")


def _root(url: SplitResult) -> str:
    return url._replace(path="/" if url.scheme == "hdfs" else "").geturl()


@cache
def _object_store(url: str, _options: str) -> pyarrow.fs.FileSystem:
    # Workers of a job on local files do without.
    from bronze_pipeline.tables.object_store import object_store  # noqa: PLC0415

    return object_store(url, storage_options(url))
