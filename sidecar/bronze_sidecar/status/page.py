"""The status page: the facts as HTML, in sections of which those that changed are sent again."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

from bronze_sidecar.status.charts import chart
from bronze_sidecar.status.markup import Content, Element, element, together
from bronze_sidecar.status.settings import DEFAULT
from bronze_sidecar.status.wording import clock, count, duration, percent, plural, rate, since, size

Facts = Mapping[str, Any]
FRESH_SECONDS = 0.5
"""For which all who watch are shown the same."""
_TEMPLATE = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")


def _hash_of(tag: str) -> str:
    content = re.search(rf"<{tag}>(.*?)</{tag}>", _TEMPLATE, re.DOTALL)
    digest = hashlib.sha256(content[1].encode()).digest() if content else b""
    return f"'sha256-{base64.b64encode(digest).decode()}'"


POLICY = (
    f"default-src 'none'; script-src {_hash_of('script')}; style-src {_hash_of('style')}; img-src data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may do: run its own script, and ask the sidecar for news."""


class StatusPage:
    """Renders the facts, once for all who watch."""

    policy = POLICY

    def __init__(self, facts: Callable[[], Facts]) -> None:
        self._facts = facts
        self._rendered: dict[str, str] = {}
        self._rendered_at = -FRESH_SECONDS

    def sections(self) -> Mapping[str, str]:
        """Return the page's sections as HTML, by name."""
        now = time.monotonic()
        if now - self._rendered_at >= FRESH_SECONDS:
            facts = self._facts()
            self._rendered |= {
                name: str(render(facts))
                for name, render in _SECTIONS.items()
                if name not in _CONSTANT or name not in self._rendered
            }
            self._rendered_at = now
        return self._rendered

    def page(self) -> bytes:
        """Return the whole page."""
        sections = self.sections()
        return re.sub(r"\{\{(\w+)\}\}", lambda found: sections[found[1]], _TEMPLATE).encode()


# -- pieces


def _facts_list(*pairs: tuple[str, Content] | None) -> Element:
    return element(
        "dl",
        *(together(element("dt", name), element("dd", value)) for name, value in filter(None, pairs)),
    )


def _table(
    caption: str, columns: Mapping[str, str], rows: list[list[Content]], kind: str = "stack"
) -> Element:
    """Make a table of columns, each with its class; the first cell of a row is its header."""
    names = [*columns]
    head = element("tr", *(element("th", name, scope="col", class_=columns[name]) for name in names))
    body = [
        element(
            "tr",
            element("th", row[0], scope="row", class_=columns[names[0]]),
            *(
                element("td", cell, class_=columns[name], data_label=name)
                for name, cell in zip(names[1:], row[1:], strict=True)
            ),
        )
        for row in rows
    ]
    return element(
        "table",
        element("caption", caption) if caption else None,
        element("thead", head),
        element("tbody", *body),
        class_=kind,
    )


def _meter(name: str, value: float, most: float) -> Element:
    return element(
        "meter",
        percent(value, most),
        value=min(value, most),
        max=most or 1,
        high=0.8 * most,
        aria_label=f"{name}: {percent(value, most)}",
    )


def _problem_count(number: int) -> Content:
    return element("span", count(number), class_="bad") if number else "0"


# -- sections


def _about(facts: Facts) -> Element:
    return together(
        f"version {facts['version']} · up {duration(facts['uptime_seconds'])} · {facts['hot_path']} hot path"
        f" · {clock(facts['time'], facts['time'])}"
    )


def _verdict(facts: Facts) -> Element:
    found, now = facts["problems"], facts["time"]
    if not found:
        return element("h2", "All is well", class_="well", role="status")
    items = [
        element(
            "li",
            element("strong", problem["what"]),
            f" — {since(problem['since'], now)}" if problem["since"] else None,
            element("p", problem["detail"]) if problem["detail"] else None,
            class_=problem["level"],
        )
        for problem in found
    ]
    # Only the number is announced: the sentences change every second.
    return together(
        element("h2", plural(len(found), "problem"), role="status"),
        element("ul", *items, class_="problems"),
    )


def _producers(facts: Facts) -> Element:
    producers, now = facts["producers"], facts["time"]
    streams = facts["streams"]
    caption = f"{plural(streams['open'], 'stream')} open; at most {count(streams['most'])}"
    if not producers:
        return element("p", f"No producer has connected yet. {caption}.")
    rows: list[list[Content]] = [
        [
            together(
                each["source"] or "(no source)",
                element("small", f"{each['origin']} · {each['stream_id']}"),
                None
                if each["connected"]
                else element("small", f"left at {clock(each['since'], now)}", class_="bad"),
            ),
            rate(each["messages_per_second"]),
            count(each["next_position"]),
            together(
                count(each["unacknowledged_messages"]),
                element("small", size(each["unacknowledged_bytes"])),
            ),
            _problem_count(each["rejected"]["events"] + each["given_up"]["events"]),
        ]
        for each in producers
    ]
    more = facts["more_producers"]
    return together(
        _table(
            caption,
            {
                "Source, stream": "name",
                "Messages": "number",
                "Position": "number",
                "Unacknowledged": "number",
                "Refused": "number",
            },
            rows,
        ),
        element("p", f"and {count(more)} more") if more else None,
    )


def _sidecar(facts: Facts) -> Element:
    received, memory, letters, history = (
        facts["received"],
        facts["memory"],
        facts["dead_letters"],
        facts["history"],
    )
    given_up = sum(each["given_up"]["events"] for each in facts["backends"].values())
    kept = (
        f"{plural(letters['written'], 'line')} in {letters['file']}"
        if letters["file"]
        else "off: --dead-letter-file is not set"
    )
    return together(
        _facts_list(
            ("Receives", rate(received["per_second"])),
            ("Received", f"{plural(received['messages'], 'message')}, {size(received['bytes'])}"),
            ("Filtered", plural(received["filtered_events"], "event")),
            ("Rejected", _problem_count(received["rejected"]["events"])),
            ("Given up", _problem_count(given_up)),
            ("Dead letters", kept),
            (
                "Memory",
                (
                    f"{size(memory['resident_bytes'])} of {size(memory['limit_bytes'])}"
                    f" ({percent(memory['resident_bytes'], memory['limit_bytes'])})"
                ),
            ),
        ),
        _meter("Memory", memory["resident_bytes"], memory["limit_bytes"]),
        chart("Received per second", history["received_per_second"], count),
        chart("Memory", history["resident_bytes"], size, memory["limit_bytes"]),
    )


def _backends(facts: Facts) -> Element:
    if not facts["backends"]:
        return element("article", element("p", "None is configured: publishing is off."))
    return together(
        *(
            _backend(backend, facts["history"]["backends"][name], facts["time"])
            for name, backend in facts["backends"].items()
        )
    )


def _backend(backend: Facts, history: Facts, now: str) -> Element:
    is_ready = backend["state"] == "ready"
    word, _, reason = backend["state"].partition(": ")
    error, held, given_up = backend["last_error"], backend["held"], backend["given_up"]
    fill = max(
        backend["waiting_events"] / backend["most_events"], backend["waiting_bytes"] / backend["most_bytes"]
    )
    return element(
        "article",
        element("h3", backend["title"]),
        element("span", word, class_="state good" if is_ready else "state bad"),
        element("p", since(backend["since"], now), class_="soft"),
        element("p", reason, class_="bad") if reason else None,
        _facts_list(
            ("Publishes", rate(backend["per_second"])),
            ("Published", plural(backend["published_events"], "event")),
            (
                "Waiting",
                (
                    f"{count(backend['waiting_events'])} of {plural(backend['most_events'], 'event')},"
                    f" {size(backend['waiting_bytes'])} of {size(backend['most_bytes'])}"
                ),
            ),
            ("Oldest", duration(backend["oldest_unacknowledged_seconds"])),
            (
                "On disk",
                (
                    f"{plural(backend['on_disk_events'], 'event')}, {size(backend['on_disk_bytes'])} of"
                    f" {size(backend['most_on_disk_bytes'])}; {backend['disk']}"
                ),
            )
            if "disk" in backend
            else None,
            (
                "Held back",
                (
                    f"{plural(held['events'], 'event')} of {plural(held['keys'], 'key')}:"
                    f" {held['first'][0]['destination']}"
                ),
            )
            if held
            else None,
            ("Retried", plural(backend["retried_events"], "event")),
            ("Given up", _problem_count(given_up["events"])),
            (
                "Last error",
                together(element("small", clock(error["time"], now)), f" {error['reason']}"),
            )
            if error
            else None,
            ("Order", backend["order"]) if backend["order"] not in {"", "strict"} else None,
        ),
        _meter("Queue", fill, 1),
        chart("Published per second", history["published_per_second"], count),
        chart("Waiting events", history["waiting_events"], count),
        aria_label=backend["title"],
    )


def _failures(facts: Facts) -> Element:
    if not facts["last_failures"]:
        return element("p", "None since the start.")
    rows: list[list[Content]] = [
        [
            clock(each["time"], facts["time"]),
            "given up" if each["kind"] == "failed" else each["kind"],
            facts["backends"].get(each.get("backend"), {}).get("title", "—"),
            together(
                each.get("source", ""),
                element("small", f"{each['stream_id']}:{each['position']}{_level(each)}"),
            ),
            each.get("destination", "—"),
            each["reason"],
        ]
        for each in reversed(facts["last_failures"])
    ]
    columns = dict.fromkeys(("Time", "What", "Back end", "Source, event", "Destination", "Reason"), "name")
    return _table("The last ten of each kind", columns, rows)


def _level(failure: Facts) -> str:
    return f".{failure['level']}" if "level" in failure else ""


def _destinations(facts: Facts) -> Element:
    if not facts["destinations"]:
        return element("p", "Nothing has been published yet.")
    rows: list[list[Content]] = [
        [
            each["destination"],
            facts["backends"][each["backend"]]["title"],
            f"about {percent(each['share'], 1)}",
        ]
        for each in facts["destinations"]
    ]
    return _table(
        "By a few records of each write since the start",
        {"Destination": "name", "Back end": "name", "Share": "number"},
        rows,
        kind="plain",
    )


def _configuration(facts: Facts) -> Element:
    def table(rows: list[Facts], caption: str) -> Element:
        columns = {"Option": "name", "Value": "name", "From": "name"}
        return _table(
            caption,
            columns,
            [[row["option"], row["value"] or "—", row["from"]] for row in rows],
            kind="plain",
        )

    given = [each for each in facts["configuration"] if each["from"] != DEFAULT]
    others = [each for each in facts["configuration"] if each["from"] == DEFAULT]
    return together(
        table(given, "Secrets are not shown"),
        element("details", element("summary", f"{plural(len(others), 'default')}"), table(others, "")),
    )


_SECTIONS: dict[str, Callable[[Facts], Element]] = {
    "about": _about,
    "verdict": _verdict,
    "producers": _producers,
    "sidecar": _sidecar,
    "backends": _backends,
    "failures": _failures,
    "destinations": _destinations,
    "configuration": _configuration,
}
_CONSTANT = {"configuration"}
