"""Calls that store records in part keep order per key, and lose nothing."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Mapping

import pytest
from bronze_sidecar.errors import DeliveryError, Disconnected, NotTried, Permanent, Transient
from bronze_sidecar.sinks.aws.calls import Call, CallLimits, CallPlan, carry_out
from bronze_sidecar.sinks.aws.service import Denied, InvalidCall, Missing, Unavailable

Answer = Callable[[Call], Mapping[int, DeliveryError]]


class Service:
    """Stores what it is sent, unless a test's answer says otherwise."""

    def __init__(self, answer: Answer = lambda _: {}) -> None:
        self.answer = answer
        self.calls: list[list[int]] = []
        self.stored: list[int] = []
        self.at_once = self.most_at_once = 0

    async def send(self, call: Call) -> Mapping[int, DeliveryError]:
        self.calls.append(list(call.places))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        errors = self.answer(call)
        self.stored += [place for index, place in enumerate(call.places) if index not in errors]
        return errors


def plan(keys: str, *, records: int = 100, run: int = 1, joined: int = 0) -> CallPlan:
    """Plan records of one byte; each letter is a key."""
    orders = [("stream", key) for key in keys]
    return CallPlan(orders, [1] * len(keys), {}, CallLimits(records, 1000, run, joined))


def raises(error: DeliveryError, *places: int) -> Answer:
    """Fail every call that has one of the places."""

    def answer(call: Call) -> Mapping[int, DeliveryError]:
        if set(places) & set(call.places):
            raise error
        return {}

    return answer


def refuses(*places: int) -> Answer:
    """Refuse records, each time they come."""
    return lambda call: {
        index: Transient("busy") for index, place in enumerate(call.places) if place in places
    }


async def test_a_call_has_one_record_of_each_key() -> None:
    service = Service()
    assert await carry_out(plan("aabab"), service.send, 8) == []
    assert service.calls == [[0, 2], [1, 4], [3]]


async def test_a_call_has_no_more_records_than_allowed_and_others_go_beside_it() -> None:
    service = Service()
    assert await carry_out(plan("abcdefg", records=3), service.send, 8) == []
    assert service.calls == [[0, 1, 2], [3, 4, 5], [6]]
    assert service.most_at_once == 3


async def test_no_more_calls_go_side_by_side_than_allowed() -> None:
    service = Service()
    assert await carry_out(plan("abcdefgh", records=1), service.send, 2) == []
    assert service.most_at_once == 2
    assert sorted(service.stored) == list(range(8))


async def test_a_call_has_no_more_bytes_than_allowed() -> None:
    service = Service()
    orders = [("stream", key) for key in "abcd"]
    sized = CallPlan(orders, [400, 600, 1, 999], {}, CallLimits(100, 1000))
    assert await carry_out(sized, service.send, 8) == []
    assert service.calls == [[0, 1], [2, 3]]


async def test_a_call_has_one_destination() -> None:
    service = Service()
    orders = [("x", "a"), ("y", "a"), ("x", "b"), ("y", "b")]
    assert await carry_out(CallPlan(orders, [1] * 4, {}, CallLimits(100, 1000)), service.send, 8) == []
    assert service.calls == [[0, 2], [1, 3]]


async def test_after_a_refused_record_nothing_more_of_its_key_is_sent() -> None:
    service = Service(refuses(1))
    failures = dict(await carry_out(plan("abababb"), service.send, 8))
    assert service.stored == [0, 2, 4]
    assert {place: type(error) for place, error in failures.items()} == {
        1: Transient,
        3: NotTried,
        5: NotTried,
        6: NotTried,
    }


async def test_a_permanent_failure_does_not_hold_back_its_key() -> None:
    service = Service(lambda call: {0: Permanent("bad")} if 0 in call.places else {})
    assert [place for place, _ in await carry_out(plan("aab"), service.send, 8)] == [0]
    assert service.stored == [2, 1]


async def test_what_is_wrong_already_is_not_sent() -> None:
    service = Service()
    wrong: dict[int, DeliveryError] = {1: Permanent("too large")}
    orders = [("stream", key) for key in "aaa"]
    assert await carry_out(CallPlan(orders, [1] * 3, wrong, CallLimits(100, 1000)), service.send, 8) == [
        (1, wrong[1])
    ]
    assert service.stored == [0, 2]


async def test_a_refused_call_is_halved_until_the_record_to_blame_is_alone() -> None:
    service = Service(raises(InvalidCall("invalid"), 5))
    failures = await carry_out(plan("abcdefgh"), service.send, 1)
    assert [(place, type(error)) for place, error in failures] == [(5, InvalidCall)]
    assert sorted(service.stored) == [0, 1, 2, 3, 4, 6, 7]
    assert service.calls == [
        list(range(8)),
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [4, 5],
        [4],
        [5],
        [6, 7],
    ]


async def test_a_key_goes_on_after_its_record_to_blame() -> None:
    service = Service(raises(InvalidCall("invalid"), 1))
    assert [place for place, _ in await carry_out(plan("abab"), service.send, 8)] == [1]
    assert sorted(service.stored) == [0, 2, 3]


async def test_a_failed_call_ends_the_write() -> None:
    service = Service(raises(Disconnected("gone"), 2))
    failures = dict(await carry_out(plan("aaab"), service.send, 1))
    assert service.calls == [[0, 3], [1], [2]]
    assert failures == {2: failures[2]}
    failures = dict(await carry_out(plan("aaaab"), Service(raises(Disconnected("gone"), 2)).send, 1))
    assert {place: type(error) for place, error in failures.items()} == {2: Disconnected, 3: NotTried}


async def test_a_missing_destination_fails_alone() -> None:
    for error in (Missing("no such stream"), Denied("not allowed"), Unavailable("its key is disabled")):
        orders = [("x", "a"), ("y", "a"), ("x", "a"), ("y", "a"), ("x", "b"), ("x", "c")]
        service = Service(lambda call, error=error: raises(error, 0, 4, 5)(call))  # type: ignore[misc]
        failures = dict(await carry_out(CallPlan(orders, [1] * 6, {}, CallLimits(2, 1000)), service.send, 1))
        assert service.stored == [1, 3]
        assert sorted(failures) == [0, 2, 4, 5]
        assert isinstance(failures[5], type(error))


async def test_a_write_of_which_every_call_was_lost_raises() -> None:
    with pytest.raises(Disconnected):
        await carry_out(plan("aab"), Service(raises(Disconnected("gone"), 0, 1, 2)).send, 8)


@pytest.mark.parametrize("error", [Transient("busy"), Unavailable("key disabled")])
async def test_a_write_of_which_nothing_was_stored_names_what_was_refused(error: DeliveryError) -> None:
    failures = dict(await carry_out(plan("aab"), Service(raises(error, 0, 1, 2)).send, 8))
    assert failures[0] is failures[2] is error
    assert isinstance(failures[1], NotTried)


async def test_of_calls_side_by_side_only_the_lost_one_is_in_doubt() -> None:
    service = Service(
        lambda call: raises(Disconnected("gone"), 1)(call) or raises(Transient("busy"), 2)(call)
    )
    failures = dict(await carry_out(plan("abcd", records=1), service.send, 4))
    assert {place: type(error) for place, error in failures.items()} == {1: Disconnected, 2: Transient}
    assert service.stored == [0, 3]


async def test_a_lost_call_beside_a_refused_one_is_not_the_whole_write() -> None:
    service = Service(
        lambda call: raises(Disconnected("gone"), 0)(call) or raises(Transient("busy"), 1)(call)
    )
    failures = dict(await carry_out(plan("ab", records=1), service.send, 2))
    assert {place: type(error) for place, error in failures.items()} == {0: Disconnected, 1: Transient}


async def test_a_write_that_failed_for_good_in_part_does_not_raise() -> None:
    service = Service(lambda _: {0: Permanent("bad"), 1: Transient("busy")})
    failures = await carry_out(plan("ab"), service.send, 8)
    assert [(place, type(error)) for place, error in failures] == [(0, Permanent), (1, Transient)]


async def test_a_run_puts_more_records_of_a_key_into_a_call() -> None:
    service = Service()
    assert await carry_out(plan("aaaaab", records=3, run=3), service.send, 8) == []
    assert service.calls == [[0, 1, 2], [5], [3, 4]]


async def test_a_run_that_is_halved_is_sent_once() -> None:
    service = Service(raises(InvalidCall("invalid"), 1))
    assert [place for place, _ in await carry_out(plan("aaaaaa", records=4, run=4), service.send, 1)] == [1]
    assert service.stored == [0, 2, 3, 4, 5]


async def test_records_that_are_sent_as_one_count_as_one() -> None:
    service = Service()
    assert await carry_out(plan("aaabac", records=2, joined=100), service.send, 8) == []
    assert service.calls == [[0, 1, 2, 4, 3], [5]]


async def test_records_that_are_sent_as_one_stay_within_their_bytes_and_those_of_the_call() -> None:
    orders = [("stream", key) for key in "aaaab"]
    service = Service()
    joined = CallPlan(orders, [300, 300, 300, 700, 500], {}, CallLimits(100, 1000, joined=600))
    assert await carry_out(joined, service.send, 1) == []
    # The larger record goes alone; the call has no room for another key beside two of the first.
    assert service.calls == [[0, 1], [4, 2], [3]]


async def test_what_is_sent_as_one_and_refused_is_shortened_until_the_record_to_blame_is_alone() -> None:
    service = Service(raises(InvalidCall("invalid"), 2))
    failures = await carry_out(plan("aaaaab", joined=100), service.send, 8)
    assert [(place, type(error)) for place, error in failures] == [(2, InvalidCall)]
    assert [place for place in service.stored if place != 5] == [0, 1, 3, 4]
    assert 5 in service.stored
    assert service.most_at_once <= 2


async def test_a_refusal_of_what_is_sent_as_one_shortens_it_too() -> None:
    service = Service(
        lambda call: dict.fromkeys(
            [at for at, place in enumerate(call.places) if place != 4 and 1 in call.places], Permanent("bad")
        )
    )
    failures = await carry_out(plan("aaaabc", joined=100), service.send, 8)
    assert [place for place, _ in failures] == [1, 5]
    assert [place for place in service.stored if place != 4] == [0, 2, 3]


async def test_what_is_sent_as_one_and_cannot_be_stored_now_holds_back_its_key() -> None:
    service = Service(lambda call: {0: Transient("busy"), 1: Transient("busy")} if 0 in call.places else {})
    joined = CallPlan([("stream", "a")] * 3, [1] * 3, {}, CallLimits(100, 1000, joined=2))
    failures = await carry_out(joined, service.send, 8)
    assert [(place, type(error)) for place, error in failures] == [
        (0, Transient),
        (1, Transient),
        (2, NotTried),
    ]
    assert service.stored == []


@pytest.mark.parametrize("joined", [0, 900])
@pytest.mark.parametrize("seed", range(40))
async def test_whatever_fails_order_is_kept_and_every_record_is_settled_once(seed: int, joined: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    count = chance.randint(1, 300)
    orders = [(chance.choice("xyz"), chance.choice("abcdefgh")) for _ in range(count)]
    sizes = [chance.randint(1, 500) for _ in range(count)]

    def answer(call: Call) -> Mapping[int, DeliveryError]:
        queues = {orders[place] for place in call.places}
        assert len(queues) <= 5
        assert joined or len(queues) == len(call.places)
        assert len({orders[place][0] for place in call.places}) == 1
        assert len(call.places) == 1 or sum(sizes[place] for place in call.places) <= 600
        if chance.random() < 0.02:
            raise chance.choice([Transient("busy"), Disconnected("gone"), Missing("none")])
        if any(place % 17 == 3 for place in call.places):
            raise InvalidCall("invalid")
        busy = {queue for queue in queues if chance.random() < 0.05}
        return {index: Transient("busy") for index, place in enumerate(call.places) if orders[place] in busy}

    service = Service(answer)
    planned = CallPlan(orders, sizes, {}, CallLimits(5, 600, joined=joined))
    try:
        failures = dict(await carry_out(planned, service.send, chance.randint(1, 6)))
    except Disconnected as error:
        failures = dict.fromkeys(range(count), error)
    assert sorted([*service.stored, *failures]) == list(range(count))
    by_order: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place in service.stored:
        by_order[orders[place]].append(place)
    for order, places in by_order.items():
        assert places == sorted(places)
        waiting = [
            place
            for place, error in failures.items()
            if orders[place] == order and not isinstance(error, Permanent)
        ]
        assert max(places) < min(waiting, default=count)
