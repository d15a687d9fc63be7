"""The event loop for code that has none: one for the process, in a thread of its own.

gRPC hands the events of all loops of a process to whichever of them listens, and fails if their own is
closed by then. So this loop serves every publisher in turn and is closed only when the process ends.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading

_lock = threading.Lock()
_running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None


def loop() -> asyncio.AbstractEventLoop:
    """Return the loop; start its thread the first time."""
    global _running  # noqa: PLW0603 - there is one for the process
    with _lock:
        if _running is None:
            started = asyncio.new_event_loop()
            thread = threading.Thread(target=started.run_forever, name="bronze-client", daemon=True)
            thread.start()
            _running = started, thread
        return _running[0]


@atexit.register
def _stop() -> None:
    if _running is not None:
        started, thread = _running
        started.call_soon_threadsafe(started.stop)
        thread.join(timeout=5)
        if not thread.is_alive():
            started.close()


def _forget() -> None:
    """A forked child has no such thread."""
    global _running  # noqa: PLW0603
    _running = None


os.register_at_fork(after_in_child=_forget)
