"""The compiled module of pylance without the package around it.

`import lance` imports pandas as well, through `pyarrow.dataset`, which takes longer than to open a table in an object
store and look up a row. Both need only `lance.file`, a thin layer, and the class behind `lance.LanceDataset`, which are
loaded here from their files. A later import of the package gets the same compiled module: that can be initialized only
once, so a finder returns it. If anything about pylance is not as expected here, the package is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_loader
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lance.file import LanceFileSession

PACKAGE, COMPILED, FILES = "lance", "lance.lance", "lance.file"

_loading = Lock()
_loaded: dict[str, ModuleType] = {}


def file_session(uri: str, storage_options: Mapping[str, str] | None) -> LanceFileSession:
    """pylance's connection to a store."""
    return _module(FILES).LanceFileSession(uri, storage_options=storage_options)


def number_of_version(uri: str, version: int | None, storage_options: Mapping[str, str] | None) -> int | None:
    """The number of a version, by default the newest; errors are those of `lance.LanceDataset`. None if the package has
    been imported, and if its class behind that is not the one of pylance 14."""
    module = _module(COMPILED)
    if PACKAGE in sys.modules:
        return None
    try:
        return int(module._Dataset(uri, version=version, storage_options=storage_options).version())
    except (TypeError, AttributeError):
        return None


def _module(name: str) -> ModuleType:
    """A module of pylance: that of the package if that has been imported."""
    if PACKAGE not in sys.modules:
        with _loading:
            if not _loaded:
                _load()
        if name in _loaded:
            return _loaded[name]
    return import_module(name)


def _load() -> None:
    package = find_spec(PACKAGE)
    places = None if package is None else package.submodule_search_locations
    if places is None:
        return
    # Both are in `sys.modules` only while the second one imports the first.
    try:
        for name in (COMPILED, FILES):
            module = _executed(PathFinder.find_spec(name, list(places)))
            _loaded[name] = module
            if name == COMPILED:
                sys.meta_path.insert(0, _HandOver(module))
    except (ImportError, AttributeError, OSError):
        return
    finally:
        for name, module in _loaded.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


def _executed(spec: ModuleSpec | None) -> ModuleType:
    if spec is None or spec.loader is None:
        raise ImportError(f"{PACKAGE} is not as expected")
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _HandOver(MetaPathFinder, Loader):
    """Finds a module that has been loaded."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None):
        return spec_from_loader(fullname, self, origin=self._module.__file__) if fullname == COMPILED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        pass
