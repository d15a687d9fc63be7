"""The compiled part of the hot path, where it is installed; the Python code does the same without it."""

from __future__ import annotations

__all__ = ["INTERFACE", "IS_INSTALLED", "compiled"]

INTERFACE = 1
"""Increased whenever what the compiled part offers changes, so that an older or newer one is not used."""

try:
    import bronze_sidecar_native as compiled
except ImportError:  # not installed, or made for another system
    IS_INSTALLED = False
else:
    IS_INSTALLED = getattr(compiled, "INTERFACE", None) == INTERFACE
