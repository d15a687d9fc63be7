"""A quick selection of what `make chaos` does."""

from __future__ import annotations

import asyncio
import math
import time

import pytest
from chaos.campaign import QUICK, Chosen, run
from chaos.cell import Findings, judge, moment_of
from chaos.services import SqsStandard
from chaos.targets import Stored, Target

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]


@pytest.mark.parametrize("cell", QUICK, ids=map("-".join, QUICK))
def test_no_promise_is_broken(cell: Chosen) -> None:
    (row,) = run([cell])
    if row.remark:
        pytest.skip(row.remark)
    assert row.broken == [], row.findings


def judged(target: type[Target], stored: Stored, *, before: Stored | None = None) -> Findings:
    """Judge a bus to which positions 0 to 4 were sent, of which 3 had to be refused."""
    findings = Findings(sent=5)
    judge(findings, before or [], stored, {3}, target.keeps_order)
    return findings


def test_what_is_lost_reordered_and_repeated_is_counted() -> None:
    good = [("a", "s:0"), ("b", "s:1"), ("a", "s:2"), ("b", "s:4")]
    assert judged(Target, good).broken() == []
    assert judged(Target, good[:1] + good[2:]).broken() == ["1 lost"]
    swapped = [good[2], good[1], good[0], good[3]]
    assert judged(Target, swapped).broken() == ["1 reordered"]
    assert judged(SqsStandard, swapped).broken() == []
    repeated = judged(Target, [*good, *good[:2]])
    assert (repeated.broken(), repeated.duplicates) == ([], 2)
    assert judged(Target, good[2:], before=good[:2]).broken() == []


async def test_what_did_not_recover_in_time_is_late_and_no_quick_recovery() -> None:
    began = time.monotonic()
    never = asyncio.create_task(asyncio.Event().wait())
    assert await moment_of(never, 0.01) == math.inf  # type: ignore[arg-type]
    soon = asyncio.create_task(asyncio.sleep(0, result=began + 2))
    assert await moment_of(soon, 10) == began + 2
    assert Findings(recovery_seconds=math.inf, bus_seconds=1).is_late
    assert Findings(recovery_seconds=math.inf, bus_seconds=math.inf).is_late
    assert not Findings(recovery_seconds=12.5, bus_seconds=10).is_late
    assert Findings(undelivered=73).broken() == ["73 undelivered"]
