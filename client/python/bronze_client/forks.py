"""Notices that a publisher came into this process by `fork`: it cannot work there.

The child has neither the thread nor the event loop that sends, gRPC must not be used on both sides of a
fork, and a lock may be held by a thread that the child does not have.
"""

from __future__ import annotations

import os

generation = 0
"""How many forks lead from the first process to this one."""


def refuse(made_in: int) -> None:
    """Raise RuntimeError if something was made before this process was forked."""
    if made_in != generation:
        raise RuntimeError(
            "This publisher was connected before the process was forked (os.fork), and does not work in"
            " the child. Connect in the child, or start it by spawn."
        )


def keep_grpc_out() -> None:
    """Switch off what gRPC does at a fork, unless the environment says otherwise. To be called first.

    It cannot stop the threads that serve a stream, and then the child crashes now and then, even if it never
    touches the publisher.
    """
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def _count() -> None:
    global generation  # noqa: PLW0603 - there is one for the process
    generation += 1


os.register_at_fork(after_in_child=_count)
