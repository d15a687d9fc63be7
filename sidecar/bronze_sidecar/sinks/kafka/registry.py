"""Confluent Schema Registry: our schema's number there, and the frame for values.

https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import struct
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bronze_buses.errors import Refused
from bronze_buses.tls import certificate_fault
from bronze_buses.web import exchange
from bronze_client.schema import NormalizedEvent

from bronze_sidecar.errors import DeliveryError, Permanent, Transient

# A registry that could not be reached is not asked again for this long: every topic would wait for nothing.
AWAY_SECONDS = 1.0
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
MAGIC_BYTE = 0
# The path to the message within the schema; a single 0 means the file's first message, which is ours.
MESSAGE_INDEXES = b"\0"
FLAGS = "--kafka-schema-registry"
URL_OPTION = f"{FLAGS}-url"
CREDENTIAL_OPTIONS = "--kafka-schema-registry-auth-username and --kafka-schema-registry-auth-password"

# As Confluent's own Python serializer sends it; the registry reads this form as well as text, and shows text.
# The registry already knows google/protobuf/timestamp.proto, which the schema imports.
SCHEMA = {
    "schemaType": "PROTOBUF",
    "schema": base64.b64encode(NormalizedEvent.DESCRIPTOR.file.serialized_pb).decode(),
}

# By registry and subject. A schema's number never changes, so it outlives the connection to the brokers.
_numbers: dict[tuple[str, str], int] = {}


class Registry:
    """A schema registry."""

    def __init__(
        self, url: str, username: str | None, password: str | None, ca_file: Path | None = None
    ) -> None:
        self._url = url.rstrip("/")
        self._ca_file = ca_file
        self._away: tuple[float, str] = (0.0, "")
        """How long it is not asked, and why."""
        self._headers = {"Content-Type": MEDIA_TYPE, "Accept": f"{MEDIA_TYPE}, application/json"}
        if username is not None:
            credentials = base64.b64encode(f"{username}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {credentials}"

    async def check(self) -> None:
        """Raise Permanent if the registry cannot be used, Transient if it cannot be reached.

        A registry that gave a number before is not asked again: we may reconnect to brokers while it is down.
        """
        if any(url == self._url for url, _ in _numbers):
            return
        try:
            status, answer = await self._ask("GET", "/schemas/types")
        except Transient as error:
            # Later, while events wait, an operator can still fix it.
            if fault := certificate_fault(error, FLAGS):
                raise Permanent(f"the registry: {fault}") from error
            if isinstance(error.__cause__, Refused):
                raise Permanent(str(error.__cause__)) from error
            raise
        if status != http.HTTPStatus.OK:
            raise _refusal(status, answer)
        if "PROTOBUF" not in answer:
            raise Permanent(f"the registry at {URL_OPTION} does not support Protobuf schemas")

    async def frame(self, topic: str) -> bytes:
        """Return what precedes each value of a topic; register our schema if necessary."""
        subject = f"{topic}-value"
        number = _numbers.get((self._url, subject))
        if number is None:
            number = await self._number(subject)
            _numbers[self._url, subject] = number
        return struct.pack(">bi", MAGIC_BYTE, number) + MESSAGE_INDEXES

    async def _number(self, subject: str) -> int:
        path = f"/subjects/{quote(subject, safe='')}"
        # Look it up first: a registry where others register the schemas may allow nothing more.
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
            status, text = await asyncio.to_thread(self._exchange, method, path, body)
        except (Refused, OSError, http.client.HTTPException) as error:
            reason = f"the registry at {URL_OPTION} cannot be reached: {error or type(error).__name__}"
            self._away = time.monotonic() + AWAY_SECONDS, reason
            raise Transient(reason) from error
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text[:200].decode(errors="replace")

    def _exchange(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        encoded = None if body is None else json.dumps(body).encode()
        url = self._url + path
        return exchange(method, url, encoded, self._headers, ca_file=self._ca_file, flags=FLAGS)


def _refusal(status: int, answer: Any, subject: str = "") -> DeliveryError:
    """Classify an answer that is not a success."""
    said = answer.get("message", answer) if isinstance(answer, dict) else answer
    if status in {http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN}:
        text = f"the registry refuses {CREDENTIAL_OPTIONS}: {said or status}"
        # If it refuses later, while events wait, an operator can still fix it.
        return Transient(text) if subject else Permanent(text)
    if status == http.HTTPStatus.CONFLICT:
        return Permanent(f"our schema is not compatible with subject '{subject}' in the registry: {said}")
    if status == http.HTTPStatus.UNPROCESSABLE_ENTITY:
        return Permanent(f"the registry does not accept our schema for subject '{subject}': {said}")
    if not subject and status == http.HTTPStatus.NOT_FOUND:
        return Permanent(f"there is no registry with Protobuf support at {URL_OPTION}: {said or status}")
    return Transient(f"the registry answers {status}: {said}")
