"""Every test of the mapping runs with and without compiled code."""

from __future__ import annotations

import pytest
from bronze_sidecar.envelope import native
from bronze_sidecar.mapping.mapper import Mapper


@pytest.fixture(autouse=True, params=["compiled", "python"])
def _mapping(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        return
    if not native.IS_INSTALLED:
        pytest.skip("there was no Rust compiler to build the mapper")
    defaults = Mapper.__init__.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "is_native", True)
