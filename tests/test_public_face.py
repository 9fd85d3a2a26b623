"""The public names: complete, documented, and importable without what is not needed."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import pennon
import pennon.spark
from pennon.index.options import options_of
from pennon.index.registry import index_types

# Members of public classes that jobs use and users do not: how results are made, and what options mean to the builder.
INTERNAL = {"between", "codes", "graph", "measure", "params", "ignored", "overridden", "settled"}
INTERNAL |= {"pin", "leaving", "exchange", "map", "stage"}
ROOT = Path(__file__).parents[1]
SECTIONS = re.compile(r"^ *(Args|Returns|Raises):$", re.MULTILINE)


def public_classes() -> dict[str, type]:
    found = {name: getattr(pennon, name) for name in pennon.__all__}
    return {name: value for name, value in found.items() if isinstance(value, type)}


def public_functions() -> dict[str, FunctionType]:
    own = {f"pennon.{name}": getattr(pennon, name) for name in pennon.__all__}
    of_spark = {f"pennon.spark.{name}": getattr(pennon.spark, name) for name in pennon.spark.__all__}
    return {name: value for name, value in {**own, **of_spark}.items() if isinstance(value, FunctionType)}


def methods(cls: type) -> Iterator[tuple[str, FunctionType, bool]]:
    """Name, function, and whether it is a property; those that Pennon defines."""
    for name in dir(cls):
        if name.startswith("_") or name in INTERNAL:
            continue
        value: Any = inspect.getattr_static(cls, name)
        is_property = isinstance(value, property)
        function = value.fget if is_property else getattr(value, "__func__", value)
        if isinstance(function, FunctionType) and function.__module__.startswith("pennon."):
            yield name, function, is_property


def annotation_names(function: FunctionType) -> set[str]:
    """All names in the annotations of a function, as they are written."""
    texts = [text for text in function.__annotations__.values() if isinstance(text, str)]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text, mode="eval"))]
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def test_every_type_that_a_public_method_takes_or_returns_is_public() -> None:
    public = {id(getattr(pennon, name)) for name in pennon.__all__}
    public |= {id(getattr(pennon.spark, name)) for name in pennon.spark.__all__}
    missing: set[str] = set()
    functions = [(name, function) for name, function in public_functions().items()]
    functions += [(f"{cls.__name__}.{name}", f) for cls in public_classes().values() for name, f, _ in methods(cls)]
    for where, function in functions:
        for name in annotation_names(function):
            value = function.__globals__.get(name)
            of_pennon = isinstance(value, type) and value.__module__.startswith("pennon.")
            alias = name.endswith("Like") and value is not None
            if (of_pennon or alias) and id(value) not in public:
                missing.add(f"{name} in {where}")
    assert not missing, "\n".join(sorted(missing))


def section_of(function: FunctionType) -> set[str]:
    return set(SECTIONS.findall(inspect.getdoc(function) or ""))


def takes_arguments(function: FunctionType) -> bool:
    parameters = list(inspect.signature(function).parameters)
    return bool([name for name in parameters if name not in {"self", "cls"}])


def verbs() -> dict[str, FunctionType]:
    own = {f"Table.{name}": function for name, function, is_property in methods(pennon.Table) if not is_property}
    return {**public_functions(), **own}


@pytest.mark.parametrize("verb", verbs())
def test_a_verb_documents_arguments_result_and_errors(verb: str) -> None:
    function = verbs()[verb]
    wanted = {"Raises"} | ({"Args"} if takes_arguments(function) else set())
    wanted |= set() if function.__annotations__.get("return") in {"None", None} else {"Returns"}
    assert wanted <= section_of(function)
    documented = re.findall(r"^ {4}(\*{0,2}\w+): ", inspect.getdoc(function) or "", re.MULTILINE)
    expected = [
        {p.VAR_KEYWORD: f"**{name}", p.VAR_POSITIONAL: f"*{name}"}.get(p.kind, name)
        for name, p in inspect.signature(function).parameters.items()
        if name != "self"
    ]
    assert [name for name in expected if name not in documented] == []


@pytest.mark.parametrize("name", public_classes())
def test_public_classes_and_their_methods_are_documented(name: str) -> None:
    cls = public_classes()[name]
    assert (cls.__doc__ or "").strip()
    assert not dataclasses.is_dataclass(cls) or not cls.__doc__.startswith(f"{name}("), "dataclasses made that text"
    lacking = [method for method, function, _ in methods(cls) if not (inspect.getdoc(function) or "").strip()]
    assert lacking == []


def test_the_help_of_create_index_lists_every_option() -> None:
    text = " ".join((inspect.getdoc(pennon.Table.create_index) or "").split())
    for index_type, cls in index_types().items():
        for option in options_of(cls):
            assert f" {option.name}: {option.help}" in text, f"{option.name} of {index_type}"
            assert option.default_text in text


def test_errors_are_documented() -> None:
    errors = [value for value in vars(pennon.errors).values() if isinstance(value, type)]
    own = [value for value in errors if value.__module__ == "pennon.errors"]
    assert len(own) > 10
    assert [value.__name__ for value in own if not (value.__doc__ or "").strip()] == []


def test_names_are_what_they_promise() -> None:
    assert sorted(pennon.__all__) == pennon.__all__
    assert len(set(pennon.__all__)) == len(pennon.__all__)
    for name in pennon.__all__:
        value = getattr(pennon, name)
        if not isinstance(value, ModuleType) and not name.endswith("Like"):
            assert value.__name__ in {name, "open_table"}


def test_every_public_name_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "api.md").read_text("utf-8")
    listed = set(re.findall(r"^::: [\w.]+\.(\w+)$", text, re.MULTILINE))
    listed |= {name for names in re.findall(r"members: \[(.*)\]", text) for name in names.split(", ")}
    listed |= set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert set(pennon.__all__) - listed == {"open"}
    assert set(pennon.spark.__all__) <= listed


@pytest.mark.process
def test_public_modules_need_no_import_of_their_own() -> None:
    """Messages and documents name `pennon.text.Match` and `pennon.spark.read`."""
    names = "pennon.text.Match, pennon.spark.read"
    code = f"import pennon; assert {{'spark', 'text'}} <= {{*dir(pennon)}}; {names}"
    subprocess.run([sys.executable, "-c", code], check=True)
