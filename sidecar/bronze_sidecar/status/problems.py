"""What is wrong now, in sentences: found in the facts alone, so that page and terminal say the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal

from bronze_sidecar.status.history import KEPT_SECONDS
from bronze_sidecar.status.wording import count, duration, percent, plural, size

Facts = Mapping[str, Any]
MOST_PRODUCERS = 5
"""That are named one by one."""
MUCH_MEMORY = 0.9
FULL = 0.98
"""The last of a batch may not fit."""


def problems(facts: Facts) -> list[dict[str, object]]:
    """Return everything that an operator should look at, the worst first."""
    found = [
        *_about_process(facts),
        *(problem for backend in facts["backends"].values() for problem in _about_backend(backend, facts)),
        *_about_producers(facts),
    ]
    return sorted(found, key=lambda each: each["level"] != "error")


def _problem(
    level: Literal["error", "warning"], what: str, detail: str = "", since: str | None = None
) -> dict[str, object]:
    return {"level": level, "what": what, "detail": detail, "since": since}


def _about_process(facts: Facts) -> Iterator[dict[str, object]]:
    if facts["stopping"]:
        yield _problem("warning", "The sidecar is stopping", "It takes no more, and delivers what it has.")
    if not facts["backends"]:
        yield _problem(
            "warning",
            "Publishing is off",
            "No back end is configured: events are acknowledged and discarded.",
        )
    memory = facts["memory"]
    if memory["resident_bytes"] > MUCH_MEMORY * memory["limit_bytes"]:
        used = percent(memory["resident_bytes"], memory["limit_bytes"])
        yield _problem("warning", f"{used} of the memory is used", "--memory-limit says how much there is.")
    letters = facts["dead_letters"]
    if letters["lost"]:
        yield _problem(
            "error",
            f"{plural(letters['lost'], 'dead letter')} could not be written",
            f"The file is {letters['file']}; the log says why.",
        )


def _about_backend(backend: Facts, facts: Facts) -> Iterator[dict[str, object]]:
    title, state = backend["title"], backend["state"]
    if state != "ready":
        kind, _, reason = state.partition(": ")
        yield _problem(
            "error",
            f"{title} {_CONDITIONS.get(kind, f'is {kind}')}{f': {reason}' if reason else ''}",
            _waiting(backend),
            backend["since"],
        )
    if backend.get("disk", "ready") != "ready":
        yield _problem(
            "error", f"{title}'s queue on disk cannot be written: {backend['disk']}", "Producers wait."
        )
    held = backend["held"]
    if held and state == "ready":
        first = held["first"][0]
        yield _problem(
            "warning",
            f"{title} does not store events for '{first['destination']}': {first['reason']}",
            f"Held back and tried again: {plural(held['events'], 'event')} of {plural(held['keys'], 'key')};"
            " other keys go on.",
            first["since"],
        )
    given_up = backend["given_up"]
    if _is_recent(given_up, facts):
        yield _problem(
            "error",
            f"{title} has refused {plural(given_up['events'], 'event')} for good, the last for"
            f" '{given_up['destination']}': {given_up['reason']}",
            f"{_where(facts)} The last one at {given_up['last'][11:19]} UTC.",
            given_up["since"],
        )


_CONDITIONS = {
    "connecting": "is not connected yet",
    "unreachable": "is away",
    "lost": "is away",
    "refused": "refuses the connection",
    "failing": "takes nothing",
    "failed": "has failed",
}


def _waiting(backend: Facts) -> str:
    waiting = backend["waiting_events"]
    if not waiting and not backend.get("on_disk_events"):
        return "Nothing waits for it."
    fill = max(
        backend["waiting_events"] / backend["most_events"], backend["waiting_bytes"] / backend["most_bytes"]
    )
    text = (
        f"Waiting in memory: {plural(waiting, 'event')} ({percent(fill, 1)} of its queue), the oldest for"
        f" {duration(backend['oldest_unacknowledged_seconds'])}."
    )
    if backend.get("on_disk_events"):
        text += f" Waiting on disk: {plural(backend['on_disk_events'], 'event')}."
    if fill >= FULL and "disk" not in backend:
        text += " The queue is full: producers wait."
    return text + " What waits is delivered when it is back; none of it is lost."


def _where(facts: Facts) -> str:
    """Say what became of events that were not published."""
    file = facts["dead_letters"]["file"]
    return f"They are kept in {file}." if file else "They are lost unless the producer sends them again."


def _is_recent(tally: Facts, facts: Facts) -> bool:
    return bool(tally["events"]) and _age(tally["last"], facts) < KEPT_SECONDS


def _age(time: str, facts: Facts) -> float:
    return (datetime.fromisoformat(facts["time"]) - datetime.fromisoformat(time)).total_seconds()


def _about_producers(facts: Facts) -> Iterator[dict[str, object]]:
    bad = [each for each in facts["producers"] if _is_recent(each["rejected"], facts)]
    for producer in bad[:MOST_PRODUCERS]:
        rejected = producer["rejected"]
        yield _problem(
            "error",
            f"{producer['source'] or 'A producer'} sends what cannot be published:"
            f" {plural(rejected['events'], 'message')} rejected, the last because {rejected['reason']}",
            f"Stream {producer['stream_id']}. {_where(facts)}",
            rejected["since"],
        )
    if len(bad) > MOST_PRODUCERS:
        yield _problem("error", f"{count(len(bad) - MOST_PRODUCERS)} more producers send such messages")
    everyone = facts["received"]["rejected"]
    if not bad and _is_recent(everyone, facts):
        yield _problem(
            "error",
            f"{plural(everyone['events'], 'message')} rejected, the last because {everyone['reason']}",
            _where(facts),
            everyone["since"],
        )
    left = [each for each in facts["producers"] if not each["connected"] and each["unacknowledged_messages"]]
    if left:
        messages = sum(each["unacknowledged_messages"] for each in left)
        amount = sum(each["unacknowledged_bytes"] for each in left)
        yield _problem(
            "warning",
            f"{plural(len(left), 'producer')} left before everything was acknowledged",
            f"Still on the way: {plural(messages, 'message')} ({size(amount)}) of theirs.",
        )
