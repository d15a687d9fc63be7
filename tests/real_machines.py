"""The real tardis-machines that tests run with, where there are some.

`TARDIS_MACHINE_18` and `TARDIS_MACHINE_3` name the folders of built servers, `TARDIS_NODE_18` and
`TARDIS_NODE_3` the Node.js that each needs, if that is not one that is installed here. Otherwise it is what
tools/install-tardis-machines.sh could install.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from servers import Unavailable
from tardis_data import TardisData
from tardis_servers import PACKAGE, ROOT, MachineServer, node_program

# The Node.js that each needs at least.
VERSIONS = {"18": (24, 19), "3": (18, 0)}


class RealMachine(MachineServer):
    """tardis-machine itself."""

    def port_arguments(self) -> Sequence[str]:
        return ["--port", str(self.port)]


@dataclass(frozen=True)
class InstalledMachine:
    """A version of tardis-machine, and where its data comes from."""

    folder: Path
    node: str
    data: TardisData | None
    cache: Path

    @property
    def version(self) -> str:
        version: str = json.loads((self.folder / "package.json").read_text())["version"]
        return version

    def server(
        self, directory: Path, environment: Mapping[str, str], arguments: Sequence[str] = ()
    ) -> RealMachine:
        """Return one that is not started."""
        modules = directory / "node_modules"
        modules.mkdir(parents=True)
        (modules / "bronze-sidecar-client").symlink_to(PACKAGE)
        # One cache for all servers, so that it is warm.
        given = ["--cache-dir", str(self.cache), *arguments]
        command = [self.node, str(self.folder / "bin/tardis-machine.js")]
        source = self.data.environment if self.data else {}
        return RealMachine(directory, command, given, {**source, **environment})


def installed_machine(version: str, data: TardisData, cache: Path) -> InstalledMachine:
    """Return the server of this major version."""
    given = os.environ.get(f"TARDIS_MACHINE_{version}")
    folder = Path(given or ROOT / f".cache/tardis-machine-{version}/node_modules/tardis-machine")
    if not (folder / "bin/tardis-machine.js").exists():
        raise Unavailable(f"there is no tardis-machine {version} in {folder}")
    node = os.environ.get(f"TARDIS_NODE_{version}") or node_program(VERSIONS[version])
    return InstalledMachine(folder, node, data, cache)
