"""The options of index types as text, for help texts, the command line and the documentation."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from pennon.index.options import IndexOptions, Option, options_of

WIDTH = 110

C = TypeVar("C", bound=IndexOptions)


@dataclass(frozen=True)
class Variant:
    """An option with the values and the default that it has for some types."""

    types: tuple[str, ...]
    option: Option

    @property
    def values_and_default(self) -> str:
        option = self.option
        fixed = len(option.choices) == 1
        parts = [option.values_text, "" if fixed else f"default {option.default_text}"]
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class SharedOption:
    """An option of one name, which several types may have."""

    name: str
    variants: tuple[Variant, ...]

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(name for variant in self.variants for name in variant.types)

    @property
    def type(self) -> type:
        """The type of its values. Index types that share an option share its type; a test checks this."""
        return self.variants[0].option.type

    @property
    def help(self) -> str:
        return " ".join(dict.fromkeys(variant.option.help for variant in self.variants))

    def constraints(self, all_types: Collection[str]) -> str:
        """The types that have the option, with values and defaults: `IVF_RQ: 1 to 9, default 5`."""
        return "; ".join(f"{types_text(v.types, all_types)}: {v.values_and_default}" for v in self.variants)


def shared_options(types: Mapping[str, type[IndexOptions]]) -> list[SharedOption]:
    """Every option of some index types once, in the order of the types."""
    found: dict[str, list[Variant]] = {}
    for index_type, cls in types.items():
        for option in options_of(cls):
            variants = found.setdefault(option.name, [])
            same = next((each for each in variants if each.option == option), None)
            if same is None:
                variants.append(Variant((index_type,), option))
            else:
                variants[variants.index(same)] = replace(same, types=(*same.types, index_type))
    return [SharedOption(name, tuple(variants)) for name, variants in found.items()]


def types_text(types: Collection[str], all_types: Collection[str]) -> str:
    """Names of index types, abbreviated if they are all types with a common prefix: `IVF_HNSW_*`."""
    if len(types) > 1:
        words = next(iter(types)).split("_")
        for start in ("_".join(words[:count]) + "_" for count in range(1, len(words))):
            if {name for name in all_types if name.startswith(start)} == set(types):
                return f"{start}*"
    return ", ".join(types)


def documented(cls: type[C]) -> type[C]:
    """The same class with its options in the docstring."""
    lines = [f"{each.name}: {each.help} [{Variant((), each).values_and_default}]" for each in options_of(cls)]
    cls.__doc__ = f"{cls.__doc__}\n\n{_section('Args:', lines)}"
    return cls


def options_text(types: Mapping[str, type[IndexOptions]]) -> str:
    """The options of all index types, as a section of a docstring."""
    lines = [f"{each.name}: {each.help} [{each.constraints(types)}]" for each in shared_options(types)]
    return _section("Options by index type:", lines)


def _section(title: str, entries: Iterable[str]) -> str:
    wrapped = (
        textwrap.fill(entry.strip(), WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8, break_long_words=False)
        for entry in entries
    )
    return "\n".join([title, *wrapped])
