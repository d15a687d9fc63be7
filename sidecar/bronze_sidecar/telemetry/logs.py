"""The log lines that operators see."""

from __future__ import annotations

import logging
import os
import sys

import structlog


def logger() -> structlog.stdlib.BoundLogger:
    """Return the process's log."""
    log: structlog.stdlib.BoundLogger = structlog.get_logger()
    return log


class _Foreign(logging.Handler):
    """Writes what libraries log as lines of ours: whoever reads JSON must not meet anything else."""

    def emit(self, record: logging.LogRecord) -> None:
        # A library may have levels of its own; ours has the tens.
        level = min(record.levelno // 10 * 10, logging.CRITICAL)
        try:
            logger().log(level, record.getMessage(), logger=record.name, exc_info=record.exc_info)
        except Exception:  # noqa: BLE001 - nobody who logs expects an exception
            self.handleError(record)


def set_up_logging(level: str, form: str, **always: object) -> None:
    """Log to standard error: readable on a terminal, JSON otherwise, unless told; some facts in each line."""
    readable = form == "console" or (form == "auto" and sys.stderr.isatty())
    # https://no-color.org
    colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=colours) if readable else structlog.processors.JSONRenderer()
    )
    structlog.contextvars.bind_contextvars(**always)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.lastResort = _Foreign(logging.WARNING)
