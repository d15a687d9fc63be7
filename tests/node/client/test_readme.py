"""The package's README names every option with its default."""

from __future__ import annotations

import re

from clients import ROOT, NodeDriver


def test_the_table_of_options_is_complete(node_driver: NodeDriver) -> None:
    text = (ROOT / "client/node/README.md").read_text()
    table = text[text.index("| option | default | meaning |") :].splitlines()[2:]
    documented = {}
    for row in table:
        names, defaults = (re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[1:3])
        documented.update(dict(zip(names, defaults or [""] * len(names), strict=True)))
    settings = node_driver.call("settle", "127.0.0.1:1", {"streamId": "s", "meta": {}})
    values = {name: value for name, value in settings.items() if name not in ("address", "producerId")}
    values |= {"streamId": "", "meta": "", "tls": "false"}
    assert documented == {name: str(value) for name, value in values.items()}
