"""Confluent Schema Registry: the number of our schema there, and the frame that values get.

https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import struct
import time
from typing import Any
from urllib.parse import quote, urlsplit

from bronze_client.schema import NormalizedEvent

from bronze_sidecar.errors import DeliveryError, Permanent, Transient

ANSWER_SECONDS = 5.0
# For so long a registry that could not be reached is not asked again: every topic would wait in vain.
AWAY_SECONDS = 1.0
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
MAGIC_BYTE = 0
# The path to the message within the schema; a single 0 stands for the file's first message, which ours is.
MESSAGE_INDEXES = b"\0"
URL_OPTION = "--kafka-schema-registry-url"
CREDENTIAL_OPTIONS = "--kafka-schema-registry-auth-username and --kafka-schema-registry-auth-password"

# As Confluent's own Python serializer sends it; the registry reads this as well as text, and shows text.
# The registry knows google/protobuf/timestamp.proto, which it imports, by itself.
SCHEMA = {
    "schemaType": "PROTOBUF",
    "schema": base64.b64encode(NormalizedEvent.DESCRIPTOR.file.serialized_pb).decode(),
}

# By registry and subject. A schema's number never changes, so it outlives the connection to the brokers.
_numbers: dict[tuple[str, str], int] = {}


class Registry:
    """A schema registry."""

    def __init__(self, url: str, username: str | None, password: str | None) -> None:
        self._url = url.rstrip("/")
        self._away: tuple[float, str] = (0.0, "")
        """Until when it is not asked, and why."""
        self._headers = {"Content-Type": MEDIA_TYPE, "Accept": f"{MEDIA_TYPE}, application/json"}
        if username is not None:
            credentials = base64.b64encode(f"{username}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {credentials}"

    async def check(self) -> None:
        """Raise Permanent if the registry is of no use, Transient if it cannot be reached.

        A registry that gave a number before is not asked again: brokers may be lost while it is away.
        """
        if any(url == self._url for url, _ in _numbers):
            return
        status, answer = await self._ask("GET", "/schemas/types")
        if status != http.HTTPStatus.OK:
            raise _refusal(status, answer)
        if "PROTOBUF" not in answer:
            raise Permanent(f"the registry of {URL_OPTION} does not take Protobuf schemas")

    async def frame(self, topic: str) -> bytes:
        """Return what goes before each value of a topic; registers our schema if it is not there yet."""
        subject = f"{topic}-value"
        number = _numbers.get((self._url, subject))
        if number is None:
            number = await self._number(subject)
            _numbers[self._url, subject] = number
        return struct.pack(">bi", MAGIC_BYTE, number) + MESSAGE_INDEXES

    async def _number(self, subject: str) -> int:
        path = f"/subjects/{quote(subject, safe='')}"
        # Looking up first: a registry where schemas are registered by others may forbid more than that.
        status, answer = await self._ask("POST", path, SCHEMA)
        if status == http.HTTPStatus.NOT_FOUND:
            status, answer = await self._ask("POST", f"{path}/versions", SCHEMA)
        if status != http.HTTPStatus.OK:
            raise _refusal(status, answer, subject)
        try:
            return int(answer["id"])
        except (KeyError, TypeError, ValueError) as error:
            raise Transient(f"the registry gives no schema id for '{subject}': {answer!r:.200}") from error

    async def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        away_until, reason = self._away
        if time.monotonic() < away_until:
            raise Transient(reason)
        try:
            # It happens once for a topic; a client with a pool and a session would be too much.
            status, text = await asyncio.to_thread(self._exchange, method, path, body)
        except (OSError, http.client.HTTPException) as error:
            reason = f"the registry of {URL_OPTION} cannot be reached: {error or type(error).__name__}"
            self._away = time.monotonic() + AWAY_SECONDS, reason
            raise Transient(reason) from error
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text[:200].decode(errors="replace")

    def _exchange(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        url = urlsplit(self._url)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.hostname or "", url.port, timeout=ANSWER_SECONDS)
        try:
            encoded = None if body is None else json.dumps(body).encode()
            connection.request(method, url.path + path, encoded, self._headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def _refusal(status: int, answer: Any, subject: str = "") -> DeliveryError:
    """Classify an answer that is no success."""
    said = answer.get("message", answer) if isinstance(answer, dict) else answer
    if status in {http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN}:
        text = f"the registry refuses {CREDENTIAL_OPTIONS}: {said or status}"
        # What it refuses later, while events wait, an operator may still put right.
        return Transient(text) if subject else Permanent(text)
    if status == http.HTTPStatus.CONFLICT:
        return Permanent(f"our schema is not compatible with subject '{subject}' of the registry: {said}")
    if status == http.HTTPStatus.UNPROCESSABLE_ENTITY:
        return Permanent(f"the registry does not take our schema for subject '{subject}': {said}")
    if not subject and status == http.HTTPStatus.NOT_FOUND:
        return Permanent(f"there is no registry that knows Protobuf at {URL_OPTION}: {said or status}")
    return Transient(f"the registry answers {status}: {said}")
