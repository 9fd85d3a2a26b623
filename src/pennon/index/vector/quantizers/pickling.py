"""Trained models travel to executors."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


class Model:
    """Pickles a frozen dataclass by its fields alone: what was cached beside them may belong to faiss."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # pyright: ignore[reportArgumentType]
