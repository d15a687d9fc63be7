"""Servers like tardis-machine with the client in them, and the bus that they publish to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hook_bus import HookBus, hook_bus
from hook_requests import VARIANTS, Start, new_node
from tardis_servers import MachineServer, Variant, hook_environment, install_stand_in


@pytest.fixture(scope="module")
def shared_bus() -> Iterator[HookBus]:
    with hook_bus() as bus:
        yield bus


@pytest.fixture
def bus(shared_bus: HookBus) -> HookBus:
    """Return a bus that tests share: ask for symbols that no other test asks for."""
    shared_bus.begin()
    return shared_bus


@pytest.fixture
def own_bus() -> Iterator[HookBus]:
    """Return a bus whose sidecar may be killed and frozen."""
    with hook_bus() as bus:
        yield bus


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> Variant:
    kind: Variant = request.param
    return kind


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a server, with the client in it if there is an address."""
    started: list[MachineServer] = []

    def start_server(
        variant: Variant = "modules",
        address: str | None = None,
        *,
        arguments: tuple[str, ...] = (),
        version: str | None = None,
        **settings: str,
    ) -> MachineServer:
        directory = tmp_path / f"server-{len(started)}"
        program = install_stand_in(directory, variant, version)
        environment = {} if address is None else hook_environment(address, **settings)
        server = MachineServer(directory, [new_node(variant), str(program)], arguments, environment)
        started.append(server)
        return server.start()  # type: ignore[return-value]

    yield start_server
    for server in started:
        server.stop()
