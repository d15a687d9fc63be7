"""A quick selection of what `make fuzz` throws at the port."""

from __future__ import annotations

import fuzz_port
import pytest

pytestmark = [pytest.mark.servers, pytest.mark.timeout(120)]


def test_odd_input_harms_nothing() -> None:
    assert fuzz_port.run(range(600), seed=1) == []
