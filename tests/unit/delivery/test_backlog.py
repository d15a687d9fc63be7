"""Whatever happens to a backlog: each record is settled once, in order per key, after its own attempts."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from unit.delivery.histories import KEYS, MOST, History

HISTORIES = int(os.environ.get("HISTORIES", "10000"))
PARTS = 10


class Histories(RuleBasedStateMachine):
    """Steps in any order, made smaller by Hypothesis when one of them breaks a promise."""

    def __init__(self) -> None:
        super().__init__()
        self.history = History()
        self.steps = 0

    @precondition(lambda self: not self.steps)
    @rule(limit=st.integers(0, 4), has_dead_letters=st.booleans())
    def configure(self, limit: int, has_dead_letters: bool) -> None:
        self.history = History(retry_limit=limit, has_dead_letters=has_dead_letters)

    @rule(keys=st.text(KEYS, min_size=1, max_size=10))
    def put(self, keys: str) -> None:
        self.steps += 1
        self.history.put(keys)

    @rule(fates=st.text("sssstpn", min_size=1, max_size=MOST), comes=st.text(KEYS, max_size=10))
    def write(self, fates: str, comes: str) -> None:
        self.history.write(fates, comes=comes)

    @rule(fate=st.sampled_from("TDE"), comes=st.text(KEYS, max_size=10))
    def fail(self, fate: str, comes: str) -> None:
        self.history.write(fate, comes=comes)

    @rule()
    def save(self) -> None:
        self.history.save()

    @rule()
    def fail_to_connect(self) -> None:
        self.history.fail_to_connect()

    @rule(seconds=st.floats(0, 2))
    def wait(self, seconds: float) -> None:
        self.history.wait(seconds)

    @invariant()
    def holds(self) -> None:
        self.history.check()

    def teardown(self) -> None:
        self.history.finish()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def run(seed: int, *, looks_ahead: bool = True) -> History:
    """Run one random history."""
    chance = random.Random(seed)  # noqa: S311
    random.seed(seed)  # for the pauses
    history = History(
        chance.choice((0, 0, 0, 1, 3)),
        has_one_path=chance.random() < 0.5,
        has_dead_letters=chance.random() < 0.5,
        looks_ahead=looks_ahead,
    )
    poison = chance.choice(("", "", "a0", "a3", "b2"))
    trouble = chance.random()
    for _ in range(chance.randint(1, 14)):
        step = chance.random()
        if step < 0.3:
            history.put("".join(chance.choices(KEYS, k=chance.randint(1, 9))))
        elif step < 0.4:
            history.wait(chance.random())
        elif step < 0.43:
            history.fail_to_connect()
        elif step < 0.45:
            history.save()
        else:
            fates = chance.choice(("".join(chance.choices("sssstpn", k=MOST)), "s"))
            fates = chance.choice("TTDE") if chance.random() < trouble / 2 else fates
            comes = "".join(chance.choices(KEYS, k=chance.choice((0, 0, 3, 9))))
            history.write(fates, poison=poison, saves=chance.random() < 0.05, comes=comes)
        history.check()
    history.finish(poison)
    if poison in history.known and not history.retry_limit and "too large" not in history.known[poison].fate:
        assert history.known[poison].fate.startswith("the connection is lost whenever it is written")
    return history


@pytest.mark.parametrize("part", range(PARTS))
def test_random_histories_keep_every_promise(part: int) -> None:
    for seed in range(part, HISTORIES, PARTS):
        try:
            run(seed)
        except AssertionError as error:
            raise AssertionError(f"history {seed}: {error}") from error


@pytest.mark.parametrize("part", range(PARTS))
def test_a_write_that_is_taken_ahead_changes_nothing(part: int) -> None:
    for seed in range(part, HISTORIES // 4, PARTS):
        plain = run(seed, looks_ahead=False)
        ahead = run(seed)
        assert (ahead.stored, ahead.letters) == (plain.stored, plain.letters), f"history {seed}"
        assert ahead.known == plain.known, f"history {seed}"


def test_a_part_of_a_cluster_that_is_down_costs_no_record() -> None:
    """Records of one key cost the connection for as long as their server is away; others are stored."""
    history = History(has_one_path=False)
    history.put("ab")
    for _ in range(100):
        history.put("b")
        ready_at = history.backlog.ready_at()
        assert ready_at is not None
        history.now = max(history.now, ready_at)
        history.write("s" * MOST, poison="a0")
        history.check()
    assert history.known["a0"].fate == ""
    assert len(history.stored) > 50
    history.finish()
    assert history.known["a0"].fate == "stored"


def test_a_suspect_that_is_always_ready_starves_nobody() -> None:
    """Opening a connection takes longer than any wait: others still have their turn, and condemn it."""
    history = History()
    history.put("a")
    for _ in range(40):
        history.put("b")
        history.wait(1000)
        history.write("s" * MOST, poison="a0")
        history.check()
    assert history.known["a0"].fate.startswith("the connection is lost whenever it is written")
    assert len(history.stored) >= 20


@pytest.mark.parametrize(("has_dead_letters", "kept"), [(False, ""), (True, "kept at 'dead': ")])
def test_a_record_behind_a_suspect_that_is_refused_for_good_does_not_hold_it_up(
    has_dead_letters: bool, kept: str
) -> None:
    history = History(has_one_path=False, has_dead_letters=has_dead_letters)
    history.put("aaa")
    for _ in range(60):
        history.wait(1000)
        # Whenever a1 is written, it is refused for good; a0 costs the connection.
        batch = history.backlog.take(history.now, 1, 60)
        if batch is None:
            break
        history._settle_or_break(batch)
        history.check()
    assert history.known["a1"].fate == kept + "too large"
    assert history.known["a0"].fate.startswith("the connection is lost whenever it is written")
    assert history.known["a2"].fate == "stored"
