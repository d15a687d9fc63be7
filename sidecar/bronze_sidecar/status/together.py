"""The facts of several processes as those of one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from bronze_sidecar.status.problems import problems
from bronze_sidecar.status.snapshot import MOST_DESTINATIONS, MOST_HELD, MOST_PRODUCERS

MOST_FAILURES = 20
GREATEST = {"oldest_unacknowledged_seconds", "uptime_seconds", "sample_seconds"}
Facts = dict[str, Any]


def together(own: Facts, workers: Mapping[int, Facts]) -> Facts:
    """Add the workers' facts to those of the process that watches over them."""
    each = [*workers.values()]
    whole = [own, *each]
    producers = [
        {**producer, "worker": number} for number, facts in workers.items() for producer in facts["producers"]
    ]
    producers.sort(
        key=lambda one: (
            not one["connected"],
            not one["connected"] and not one["unacknowledged_messages"],
            one["source"],
            one["stream_id"],
        )
    )
    unseen = sum(facts["more_producers"] for facts in each) + max(0, len(producers) - MOST_PRODUCERS)
    facts = {
        **own,
        "publishing": each[0]["publishing"] if each else own["publishing"],
        "stopping": any(one["stopping"] for one in whole),
        "memory": {
            "limit_bytes": own["memory"]["limit_bytes"],
            "resident_bytes": sum(one["memory"]["resident_bytes"] for one in whole),
        },
        # Our own bounds are nobody's.
        **{name: _sum(one[name] for one in each) if each else own[name] for name in ("streams", "sessions")},
        "received": {
            **_sum(one["received"] for one in whole),
            "rejected": _tally(one["received"]["rejected"] for one in whole),
        },
        "dead_letters": {
            **_sum(one["dead_letters"] for one in whole),
            "file": ", ".join(filter(None, (one["dead_letters"]["file"] for one in each))),
        },
        "producers": producers[:MOST_PRODUCERS],
        "more_producers": unseen,
        "backends": {
            name: _backend([one["backends"][name] for one in each if name in one["backends"]])
            for name in _names(each)
        },
        "destinations": _destinations(each),
        "last_failures": sorted(
            (failure for one in each for failure in one["last_failures"]), key=lambda one: str(one["time"])
        )[-MOST_FAILURES:],
        "history": _history([one["history"] for one in each]) if each else own["history"],
        "workers": [
            {
                "worker": number,
                "pid": one["pid"],
                "started": one["started"],
                "resident_bytes": one["memory"]["resident_bytes"],
            }
            for number, one in workers.items()
        ],
    }
    return {**facts, "problems": problems(facts)}


def _names(each: Iterable[Facts]) -> list[str]:
    """Return all back ends: a worker that was started again may have read a newer configuration."""
    return [*dict.fromkeys(name for one in each for name in one["backends"])]


def _sum(each: Iterable[Mapping[str, Any]]) -> Facts:
    """Add up what is a number; the rest is that of the first."""
    total: Facts = {}
    for one in each:
        for name, value in one.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and name in total:
                total[name] = max(total[name], value) if name in GREATEST else total[name] + value
            else:
                total.setdefault(name, value)
    return total


def _backend(each: Sequence[Facts]) -> Facts:
    """Return one back end as all workers see it; its state is the worst."""
    troubled = [one for one in each if one["state"] != "ready"]
    errors = [one["last_error"] for one in each if one["last_error"]]
    held = [one["held"] for one in each if one["held"]]
    shown = (troubled or each)[0]
    total = {
        **_sum(each),
        "state": shown["state"],
        "since": shown["since"] if troubled else max(one["since"] for one in each),
        "order": next((one["order"] for one in each if one["order"]), ""),
        "given_up": _tally(one["given_up"] for one in each),
        "last_error": max(errors, key=lambda error: str(error["time"]), default=None),
        "held": None,
    }
    if held:
        first = sorted((key for one in held for key in one["first"]), key=lambda key: -key["events"])
        total["held"] = {**_sum(held), "first": first[:MOST_HELD]}
    return total


def _tally(each: Iterable[Facts]) -> Facts:
    some = [one for one in each if one["events"]]
    if not some:
        return {"events": 0}
    return {
        **max(some, key=lambda one: str(one["last"])),
        "events": sum(one["events"] for one in some),
        "since": min(one["since"] for one in some),
    }


def _destinations(each: Sequence[Facts]) -> list[Facts]:
    """Return the destinations used most, each worker's weighed by what it publishes."""
    shares: defaultdict[tuple[str, str], float] = defaultdict(float)
    published: defaultdict[str, float] = defaultdict(float)
    for one in each:
        for name, backend in one["backends"].items():
            published[name] += backend["published_events"]
        for use in one["destinations"]:
            weight = one["backends"][use["backend"]]["published_events"]
            shares[use["backend"], use["destination"]] += use["share"] * weight
    most = sorted(shares, key=lambda use: -shares[use])
    return [
        {"backend": name, "destination": to, "share": round(shares[name, to] / (published[name] or 1), 4)}
        for backend in published
        for name, to in [use for use in most if use[0] == backend][:MOST_DESTINATIONS]
    ]


def _history(each: Sequence[Facts]) -> Facts:
    """Add up charts, which end now, and begin when their worker did."""

    def added(lists: Iterable[Sequence[float]]) -> list[float]:
        newest_first = zip_longest(*(reversed(one) for one in lists), fillvalue=0)
        return [round(sum(values), 1) for values in newest_first][::-1]

    return {
        "sample_seconds": each[0]["sample_seconds"],
        "received_per_second": added(one["received_per_second"] for one in each),
        "resident_bytes": added(one["resident_bytes"] for one in each),
        "backends": {
            name: {
                chart: added(one["backends"][name][chart] for one in each if name in one["backends"])
                for chart in ("published_per_second", "waiting_events")
            }
            for name in _names(each)
        },
    }
