"""Removes the empty objects that stand for folders, which Hadoop's connector leaves in a checkpoint in S3."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from bronze_pipeline.tables.storage import S3, STORES, given_options, s3_options

MOST_IN_CALL = 1_000

log = logging.getLogger(__name__)


def remove_folder_markers(checkpoint: str) -> None:
    """Remove those of a checkpoint, after a run; a folder with something in it is there without them."""
    url = urlsplit(checkpoint)
    if STORES.get(url.scheme) is not S3:
        return
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - only where S3 is used

    client = _client()
    try:
        pages = client.get_paginator("list_objects_v2").paginate(
            Bucket=url.netloc, Prefix=f"{url.path.strip('/')}/"
        )
        keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
        markers = [{"Key": key} for key in needless(keys)]
        for place in range(0, len(markers), MOST_IN_CALL):
            client.delete_objects(
                Bucket=url.netloc, Delete={"Objects": markers[place : place + MOST_IN_CALL], "Quiet": True}
            )
    except (BotoCoreError, ClientError) as error:
        # They do no harm, and the run has done its work.
        log.warning("objects that stand for folders are left in %s: %s", checkpoint, error)
    finally:
        client.close()


def needless(keys: Iterable[str]) -> list[str]:
    """Return the keys that stand for folders with something in them."""
    return [
        key for key, following in pairwise(sorted(keys)) if key.endswith("/") and following.startswith(key)
    ]


def _client() -> Any:
    import boto3  # noqa: PLC0415 - only where S3 is used

    options = s3_options(given_options(), os.environ)
    return boto3.client(
        "s3",
        endpoint_url=options.get("AWS_ENDPOINT_URL"),
        region_name=options.get("AWS_REGION") or options.get("AWS_DEFAULT_REGION"),
        aws_access_key_id=options.get("AWS_ACCESS_KEY_ID"),
        aws_secret_access_key=options.get("AWS_SECRET_ACCESS_KEY"),
        aws_session_token=options.get("AWS_SESSION_TOKEN"),
    )
