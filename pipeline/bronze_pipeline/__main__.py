"""`python -m bronze_pipeline`, `bronze-pipeline`, and the file that `spark-submit` runs."""

from __future__ import annotations

import sys

from bronze_pipeline.cli import main


def entry() -> None:
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    entry()
