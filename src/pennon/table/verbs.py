"""What every verb that runs jobs has: a name for them on Spark's pages, and a count of their work in its result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pennon.index.options import IndexOptions
from pennon.work import Work, working

P = ParamSpec("P")
R = TypeVar("R")

# The type of an index that is created without one.
DEFAULT_TYPE = "BTREE"


def runs_jobs(*arguments: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Name the jobs of a method by its own name and the values of these arguments, and set the field `work` of its
    result where it has one."""

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(method)

        @wraps(method)
        def verb(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                given = signature.bind(*args, **kwargs)
            except TypeError:
                return method(*args, **kwargs)  # raises Python's own error about its arguments
            given.apply_defaults()
            words = (_word(name, given.arguments) for name in arguments)
            with working(" ".join([method.__name__, *filter(None, words)])) as scope:
                result = method(*args, **kwargs)
                return _with_work(result, scope.work)

        return verb

    return decorate


def _word(name: str, given: Mapping[str, object]) -> str:
    value = given[name]
    if isinstance(value, IndexOptions):
        return value.index_type
    if value is None and name == "index_type" and given.get("recall") is None and given.get("memory") is None:
        return DEFAULT_TYPE
    return value if isinstance(value, str) else ""


def _with_work(result: Any, work: Work) -> Any:
    if is_dataclass(result) and not isinstance(result, type) and any(field.name == "work" for field in fields(result)):
        return replace(result, work=work)
    return result
