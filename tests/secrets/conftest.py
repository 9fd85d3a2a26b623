"""A server on loopback, and what opens it."""

from __future__ import annotations

from tests.support.object_store import storage_options

__all__ = ["storage_options"]
