"""The section on quarantine."""

from __future__ import annotations

from bronze_pipeline.report.markup import Markup, behind, joined, table, tag
from bronze_pipeline.report.quarantine import Quarantined, Reason, Sample

MOST_REASONS_SHOWN = 50


def quarantine_section(found: Quarantined | None) -> Markup:
    if found is None:
        return tag("p", "There is no quarantine table beside this one.")
    if not found.records:
        return tag("p", "Nothing is in quarantine.")
    shown = found.reasons[:MOST_REASONS_SHOWN]
    said = f"{found.records:,} records, by reason."
    rest = found.records - sum(each.records for each in shown)
    if rest:
        said += f" {rest:,} have other reasons than those shown."
    return joined(tag("p", said), [_reason(each, found.records) for each in shown])


def _reason(reason: Reason, records: int) -> Markup:
    share = reason.records / records
    head = tag(
        "div",
        tag("b", reason.text),
        tag("span", f"{reason.records:,} ({share:.1%})"),
    )
    meter = tag("div", tag("i", style=f"width:{max(share, 0.004):.2%}"), class_="meter", aria_hidden="true")
    rows = [_cells(sample) for sample in reason.samples]
    heads = ["destination", "bus", "partition", "position", "day", "bytes", "begins with"]
    samples = behind("Samples", table(heads, rows, label=f"Samples: {reason.text}", texts=len(heads)))
    return tag("div", head, meter, samples, class_="reason")


def _cells(sample: Sample) -> list[str]:
    return [
        *sample.place,
        sample.day,
        f"{sample.length:,}",
        tag("code", _text(sample.raw)),
    ]


def _text(raw: bytes) -> str:
    """Return bytes as ASCII, and what is not as in Python."""
    return "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in raw)
