"""A quick selection of what `make chaos` does."""

from __future__ import annotations

import pytest
from chaos.campaign import QUICK, run

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]


@pytest.mark.parametrize(("bus", "fault"), QUICK, ids=map("-".join, QUICK))
def test_no_promise_is_broken(bus: str, fault: str) -> None:
    (row,) = run([(bus, fault)])
    if row.findings is None:
        pytest.skip(row.remark)
    assert row.broken == [], row.findings
