"""Compiles every kernel into numba's cache, so that the processes of a test run do not all compile the same ones."""

from __future__ import annotations

import importlib
import pkgutil

import pennon


def main() -> None:
    """Import all modules that hold kernels."""
    for module in pkgutil.walk_packages(pennon.__path__, "pennon."):
        if module.name.endswith("kernels"):
            importlib.import_module(module.name)


if __name__ == "__main__":
    main()
