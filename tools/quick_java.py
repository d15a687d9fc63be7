"""Java's options for sessions of Spark that are short, as in tests and the demo."""

from __future__ import annotations

from pathlib import Path

ARCHIVE = Path(__file__).parents[1] / ".cache/spark-classes/archive.jsa"

# Compiling thoroughly, or collecting in parallel, takes longer than it saves. Of an archive, Java would say
# class by class what it leaves out.
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds=off -Xlog:cds+dynamic=off"


def quick_java() -> str:
    """Return what SPARK_SUBMIT_OPTS should be."""
    return f"{OPTIONS} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else OPTIONS
