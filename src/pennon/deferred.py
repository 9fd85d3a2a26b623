"""Functions, classes and modules that are imported when they are first used.

A process that opens a table and looks up a row should not wait for what builds indices. Such names are imported for
type checkers only, and deferred at run time:

    if TYPE_CHECKING:
        from pennon.jobs.compact.compact import compact
    else:
        compact = deferred("pennon.jobs.compact.compact", "compact")

A test compares the two.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Deferred:
    """Represents a module, or a function or class of one: calls, attributes and tests for instances go to the
    original."""

    __slots__ = ("_module", "_name")

    def __init__(self, module: str, name: str | None) -> None:
        self._module, self._name = module, name

    def _original(self) -> Any:
        module = import_module(self._module)
        return module if self._name is None else getattr(module, self._name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._original()(*args, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # what copies, pickles and inspects objects need not import it
        return getattr(self._original(), name)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._original())

    def __repr__(self) -> str:
        return f"deferred({self._module!r}, {self._name!r})"


def deferred(module: str, name: str | None = None) -> Any:
    """A name of a module, or the module itself, imported when it is first used."""
    return Deferred(module, name)
