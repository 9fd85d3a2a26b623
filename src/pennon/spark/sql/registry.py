"""All table functions by name, in a form that Spark takes.

Their modules are imported when a function is used: kernels of searches take long to load.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from pennon.format.snapshot import Pin
from pennon.index.cache import SHARED_CACHE
from pennon.query.catalog import Catalog
from pennon.spark.errors import without_traceback
from pennon.spark.sql.function import SIGNATURES, FunctionSchema, Rows, Storage, TableFunction

if TYPE_CHECKING:
    from pyspark.sql.udtf import AnalyzeArgument


def table_functions(storage: Storage) -> dict[str, type]:
    """Name in SQL -> class. The storage options are part of the classes, because arguments are visible in plans. Local
    classes are pickled by value, so they only call functions of this module."""
    return {name: _class_of(storage, name) for name in SIGNATURES}


def _class_of(storage: Storage, name: str) -> type:
    class PennonFunction:
        def __init__(self, result: FunctionSchema) -> None:
            self._result = result

        @staticmethod
        def analyze(*given: AnalyzeArgument, **named: AnalyzeArgument) -> FunctionSchema:
            with without_traceback():
                return analyzed(storage, name, given, named)

        def eval(self, *given: Any, **named: Any) -> Rows:
            with without_traceback():
                yield from answered(self._result, name, given, named)

    # Spark reads the names of arguments from signatures.
    signature = SIGNATURES[name]
    own = [Parameter(argument, Parameter.POSITIONAL_OR_KEYWORD) for argument in signature.required]
    own += [Parameter(argument, Parameter.POSITIONAL_OR_KEYWORD, default=None) for argument in signature.optional]
    own.append(Parameter("options", Parameter.VAR_KEYWORD))
    PennonFunction.analyze.__signature__ = Signature(own)  # pyright: ignore[reportFunctionMemberAccess]
    of_eval = Signature([Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *own])
    PennonFunction.eval.__signature__ = of_eval  # pyright: ignore[reportFunctionMemberAccess]
    return PennonFunction


def function_named(name: str) -> TableFunction:
    """The function, from its module."""
    module = import_module(f"{__package__}.{SIGNATURES[name].module}")
    return next(function for function in module.FUNCTIONS if function.name == name)


def analyzed(storage: Storage, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> FunctionSchema:
    """The columns of a call."""
    function = function_named(name)
    return function.analyzed(storage, function.bind(given, named))


def answered(result: FunctionSchema, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Rows:
    """The rows of a call."""
    assert result.pin is not None
    function = function_named(name)
    return function.run(_catalog(result.pin), result, function.bind(given, named))


@lru_cache(maxsize=4)
def _catalog(pin: Pin) -> Catalog:
    """Cached in the worker process: a column of queries searches many times."""
    return Catalog.read(pin.open(), SHARED_CACHE)
