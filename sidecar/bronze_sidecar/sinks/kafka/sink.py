"""The Kafka sink: sends record batches to the leaders of their partitions, and waits for their answers.

The library's producer is not used. It numbers each batch when sending it, and cannot take the number back if
the broker refuses the batch: every later batch of the partition would be out of order. Here a number is used
up only when the broker has stored its batch, and is kept when we reconnect (numbering.py). That producer also
cannot be told to give up a batch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from aiokafka import errors
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest

from bronze_sidecar.errors import Disconnected, NotTried, Permanent, Transient
from bronze_sidecar.routing.rules import Record
from bronze_sidecar.sinks.base import STRICT_ORDER, Failed, Limits
from bronze_sidecar.sinks.kafka import connection as kafka_connection
from bronze_sidecar.sinks.kafka.answers import (
    NO_ANSWER,
    NO_LEADER,
    NO_TOPIC,
    STORED,
    TEXTS,
    Answer,
    Fate,
    by_code,
    by_failure,
)
from bronze_sidecar.sinks.kafka.batches import Packer, Parcel, Partition
from bronze_sidecar.sinks.kafka.connection import KafkaConnection
from bronze_sidecar.sinks.kafka.numbering import Numbering, Producer
from bronze_sidecar.sinks.kafka.options import ACKS
from bronze_sidecar.sinks.kafka.registry import Registry
from bronze_sidecar.sinks.kafka.topics import PATIENCE_SECONDS, RETRY_SECONDS, Topics
from bronze_sidecar.sinks.kafka.write import Write

if TYPE_CHECKING:
    from bronze_sidecar.routing.route import Route
    from bronze_sidecar.sinks.kafka.options import Kafka

LIMITS = Limits(records=16_384, bytes=16 * 1024 * 1024)
REQUIRED_ACKS = {"all": -1, "leader": 1, "none": 0}
NO_TIMEOUT = 2**31 - 1
# A batch that breaks the connection so often is not sent again; the first time it may have been in company.
MOST_BREAKS = 3

Queues = dict[Partition, deque[Parcel]]


@contextlib.asynccontextmanager
async def open_kafka(options: Kafka, route: Route) -> AsyncIterator[KafkaSink]:
    """Connect, log in, and prepare to number batches; close on leaving."""
    registry = None
    if options.schema_registry_url:
        registry = Registry(
            options.schema_registry_url,
            options.schema_registry_auth_username,
            options.schema_registry_auth_password,
            options.schema_registry_ca_file,
        )
        await registry.check()
    acks = REQUIRED_ACKS[ACKS.get(options.acks, options.acks)]
    is_idempotent = acks == -1 if options.idempotent is None else options.idempotent
    async with kafka_connection.connect(options) as connection:
        numbering = await _numbering(connection, route) if is_idempotent else Numbering(producer=Producer())
        topics = Topics(connection, registry, numbering)
        yield KafkaSink(connection, topics, Packer(route, options.compression), acks, numbering)


async def _numbering(connection: KafkaConnection, route: Route) -> Numbering:
    """Continue with the numbers of the last connection, if that was to the same cluster."""
    numbering: Numbering | None = route.remembered
    if numbering is None or numbering.cluster != connection.cluster_id:
        numbering = route.remembered = Numbering(connection.cluster_id)
    try:
        if numbering.producer is None:
            numbering.producer = await _begin(connection)
        else:
            await connection.ping()
    except Disconnected as error:
        raise Transient(str(error)) from error
    numbering.look_back()
    return numbering


async def _begin(connection: KafkaConnection) -> Producer:
    """Ask for an id by which the broker tells repeated batches from new ones."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TIMEOUT)
    until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        answer = await connection.ask_any(request)
        # A broker that has just started has no ids to give for a moment.
        loads = answer.error_code == errors.CoordinatorLoadInProgressError.errno
        if not loads or asyncio.get_running_loop().time() > until:
            break
        await asyncio.sleep(RETRY_SECONDS)
    if answer.error_code == errors.ClusterAuthorizationFailedError.errno:
        raise Permanent(TEXTS[answer.error_code])
    if answer.error_code:
        raise Transient(f"no producer id: {errors.for_code(answer.error_code).__name__}")
    return Producer(answer.producer_id, answer.producer_epoch)


class KafkaSink:
    """A connected cluster."""

    limits = LIMITS
    forgets_ids_after: float | None = None
    has_one_path = False
    advice = ""
    order = STRICT_ORDER

    def __init__(
        self, connection: KafkaConnection, topics: Topics, packer: Packer, acks: int, numbering: Numbering
    ) -> None:
        self._connection = connection
        self._topics = topics
        self._packer = packer
        self._acks = acks
        self._numbering = numbering
        self._lost: Disconnected | None = None
        """Why nothing can be written any more; None while it can."""

    async def ping(self) -> None:
        await self._connection.ping()

    def prepare(self, batch: Sequence[Record]) -> Queues | None:
        """Put the records into parcels, if it is known what to do with each; they get their numbers later."""
        if self._numbering.looks_back:
            return None
        try:
            return self._packer.pack(batch, range(len(batch)), self._topics.known)
        except KeyError:
            return None

    async def write(self, batch: Sequence[Record], prepared: Queues | None = None) -> Sequence[Failed]:
        """Send batches to each partition one after another, and to different partitions at the same time."""
        if self._lost:
            raise self._lost
        write = Write(batch, kafka_connection.ANSWER_SECONDS)
        queues = prepared or await self._pack(write)
        try:
            await self._send_all(queues, write)
        except BaseException:
            # What was sent may be stored. The next connection finds out.
            self._lost = Disconnected("a write was interrupted")
            raise
        try:
            return write.failures()
        except Disconnected as error:
            raise self._lost or error from error

    async def _pack(self, write: Write) -> Queues:
        """Put the records into parcels; ask for topics that are not known."""
        topics = self._topics.known
        unknown = {record.address.destination for record in write.batch} - topics.keys()
        if unknown:
            write.fail_destinations(await self._topics.learn(unknown))
            write.goes_on()
        if self._numbering.looks_back:
            return self._pack_behind_doubts(write)
        return self._packer.pack(write.batch, write.places(), topics)

    def _pack_behind_doubts(self, write: Write) -> Queues:
        """Put what an earlier connection left in doubt before everything else of its partition."""
        known = {
            place: each for place in self._numbering.doubts() if (each := self._topics.known.get(place.topic))
        }
        gone = [place for place, topic in known.items() if place.partition >= len(topic.partitions)]
        if gone:
            repeated = sum(map(self._numbering.start_over, gone))
            self._lost = Disconnected(
                f"topic '{gone[0].topic}' has fewer partitions than before", repeated=repeated
            )
            raise self._lost
        new, doubtful = self._numbering.sort(write.batch, write.places())
        queues = self._packer.pack(write.batch, new, self._topics.known)
        for place, topic in known.items():
            partition = topic.partitions[place.partition]
            if place not in doubtful and partition not in queues:
                continue
            records = partition.numbers.unsettled
            places, rest = doubtful.get(place, ()), queues.get(partition, ())
            queues[partition] = deque([self._packer.repeat(partition, records, places)])
            if len(places) == len(records):
                queues[partition].extend(rest)
            else:
                # The lane has its reasons for dividing them, so it decides what comes next.
                skipped = NotTried("an earlier batch comes first")
                write.errors |= {each: skipped for parcel in rest for each in parcel.places}
        return queues

    async def _send_all(self, queues: Queues, write: Write) -> None:
        """Send parcels until each is stored or given up."""
        if any(partition.refused_since is not None for partition in queues):
            await self._look_again(write)
        while queues:
            answers = await self._send_first(queues, write.deadline)
            if STORED in answers.values():
                write.goes_on()
            waiting = [self._settle(queues, *answer, write) for answer in answers.items()]
            if any(waiting):
                await asyncio.sleep(RETRY_SECONDS)
                await self._look_again(write)

    async def _send_first(self, queues: Queues, deadline: float) -> dict[Partition, Answer]:
        """Send the first parcel of each partition to its leader."""
        answers: dict[Partition, Answer] = {}
        parcels_by_node: dict[int, list[Parcel]] = {}
        for partition, queue in queues.items():
            node = self._connection.leader(partition.place)
            if node is None:
                exists = self._connection.cluster.partitions_for_topic(partition.topic.name)
                answers[partition] = NO_LEADER if exists else NO_TOPIC
            else:
                parcels_by_node.setdefault(node, []).append(queue[0])
        if len(parcels_by_node) == 1:
            ((node, parcels),) = parcels_by_node.items()
            return answers | await self._produce(node, parcels, deadline)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._produce(node, parcels, deadline))
                for node, parcels in parcels_by_node.items()
            ]
        for task in tasks:
            answers |= task.result()
        return answers

    async def _produce(self, node: int, parcels: list[Parcel], deadline: float) -> dict[Partition, Answer]:
        """Send one parcel per partition to a broker; return what became of each."""
        together = [parcel for parcel in parcels if not parcel.breaks]
        answers = await self._request(node, together, deadline) if together else {}
        # One of these is too much for the broker; the others are stored if each is sent alone.
        for parcel in parcels:
            if parcel.breaks:
                answers |= await self._request(node, [parcel], deadline, ask_first=True)
        return answers

    async def _request(
        self, node: int, parcels: list[Parcel], deadline: float, *, ask_first: bool = False
    ) -> dict[Partition, Answer]:
        data_by_topic: dict[str, list[tuple[int, bytes | bytearray]]] = {}
        for parcel in parcels:
            topic, number = parcel.partition.place
            data_by_topic.setdefault(topic, []).append((number, parcel.data()))
            parcel.partition.numbers.unsettled = parcel.records
        # A broker with slow replicas reports that before we stop listening.
        patience = int(kafka_connection.ANSWER_SECONDS * 800)
        request = ProduceRequest(None, self._acks, patience, list(data_by_topic.items()))
        partitions = [parcel.partition for parcel in parcels]
        known = self._connection.cluster.broker_metadata(node)
        broker = f"{known.host}:{known.port}" if known else f"broker {node}"
        try:
            async with asyncio.timeout_at(deadline):
                if ask_first and not await self._answers(node):
                    return dict.fromkeys(partitions, by_failure(errors.NodeNotReadyError(), broker))
                response = await self._connection.send(node, request)
        except (errors.KafkaError, OSError, TimeoutError) as error:
            return dict.fromkeys(partitions, by_failure(error, broker))
        if not self._acks:
            return dict.fromkeys(partitions, STORED)
        answers = {
            (topic, number): by_code(code, details)
            for topic, answered in response.topics
            for number, code, *details in answered
        }
        return {partition: answers.get(partition.place, NO_ANSWER) for partition in partitions}

    async def _answers(self, node: int) -> bool:
        """Return whether a broker answers a question, so that what it does next is about a parcel."""
        try:
            await self._connection.send(node, MetadataRequest([]))
        except (errors.KafkaError, OSError):
            return False
        return True

    def _settle(self, queues: Queues, partition: Partition, answer: Answer, write: Write) -> bool:
        """Apply the answer to a partition's first parcel; return whether to wait and send it again."""
        queue = queues[partition]
        parcel = queue[0]
        if answer.fate in {Fate.UNKNOWN, Fate.BROKEN_OFF}:
            parcel.is_uncertain = True
        elif not parcel.is_uncertain:
            partition.numbers.unsettled = ()
        if answer.fate is Fate.STORED:
            queue.popleft()
            if self._numbering.looks_back:
                self._numbering.settle(partition.place, (write.batch[place] for place in parcel.places))
            partition.stored(len(parcel.records))
        elif answer.fate is Fate.OBJECTIONABLE and not parcel.is_uncertain:
            queue.popleft()
            if len(parcel.places) == 1:
                (place,) = parcel.places
                size = len(write.batch[place].event.envelope)
                said = answer.error(partition.topic.name)
                write.errors[place] = Permanent(f"{said} (the event has {size} bytes)")
            else:
                queue.extendleft(reversed(self._packer.halve(parcel)))
        elif self._is_worth_waiting(parcel, answer, write):
            return True
        else:
            self._give_up(queue, answer, write)
        if not queue:
            del queues[partition]
        return False

    def _is_worth_waiting(self, parcel: Parcel, answer: Answer, write: Write) -> bool:
        now = asyncio.get_running_loop().time()
        partition = parcel.partition
        if partition.refused_since is None:
            partition.refused_since = now
        parcel.breaks += answer.fate is Fate.BROKEN_OFF
        if answer.fate not in {Fate.NOT_NOW, Fate.UNKNOWN, Fate.BROKEN_OFF} or parcel.breaks >= MOST_BREAKS:
            return False
        # A parcel that may have been stored must not be sent under another number.
        until = write.deadline if parcel.is_uncertain else partition.refused_since + PATIENCE_SECONDS
        return now + RETRY_SECONDS < until

    def _give_up(self, queue: deque[Parcel], answer: Answer, write: Write) -> None:
        """Leave a partition's parcels to the lane."""
        first = queue[0]
        error = answer.error(first.partition.topic.name)
        # What is said about a parcel that may be stored is not the end of it: its number may be used up.
        if first.is_uncertain or (write.unreachable and not isinstance(error, Permanent)):
            error = Disconnected(write.unreachable or str(error))
        # A permanent refusal concerns the whole topic.
        rest = error if isinstance(error, Permanent) else NotTried("an earlier batch was not stored")
        if first.breaks >= MOST_BREAKS:
            size = len(first.data())
            hint = f"a batch of {size} bytes; is that more than its socket.request.max.bytes?"
            said = f"{error}, {first.breaks} times in a row after it was sent {hint}"
            # It answered a question each time before that, so a single record is to blame itself.
            error = Permanent(said) if len(first.records) == 1 else Disconnected(said)
        repeated = self._lost.repeated if self._lost else 0
        is_hopeless = first.breaks >= MOST_BREAKS or answer.fate in {Fate.OBJECTIONABLE, Fate.FORBIDDEN}
        if answer.fate is Fate.NUMBERS_LOST or (first.is_uncertain and is_hopeless):
            in_doubt = self._numbering.start_over(first.partition.place)
            repeated += 0 if isinstance(error, Permanent) else in_doubt
        if first.is_uncertain or isinstance(error, Disconnected):
            self._lost = Disconnected(str(error), repeated=repeated)
        for parcel in queue:
            write.errors.update(dict.fromkeys(parcel.places, error if parcel is first else rest))
        queue.clear()

    async def _look_again(self, write: Write) -> None:
        """Refresh which broker leads which partition."""
        try:
            async with asyncio.timeout_at(write.deadline):
                await self._connection.refresh()
            write.unreachable = ""
        except TimeoutError:
            write.unreachable = "no broker answers"
        except Disconnected as error:
            write.unreachable = str(error)
