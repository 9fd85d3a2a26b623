"""Tables of options in the pages, made from the options classes.

A page has `<!-- options of: IVF_FLAT, IVF_PQ -->` above such a table and `<!-- end of options -->` below it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pennon.index.option_text import shared_options, types_text
from pennon.index.options import TYPE_WORDS, IndexOptions

_TABLE = re.compile(
    r"(?<=^<!-- options of: )(?P<types>[A-Z_, ]+) -->\n.*?(?=^<!-- end of options -->$)", re.MULTILINE | re.DOTALL
)


def types_in(text: str) -> list[str]:
    """The index types whose options a page lists."""
    return [name for found in _TABLE.finditer(text) for name in found["types"].split(", ")]


def with_tables(text: str, known: Mapping[str, type[IndexOptions]]) -> str:
    """The text of a page with its tables made again."""

    def made(found: re.Match[str]) -> str:
        chosen = {name: known[name] for name in found["types"].split(", ")}
        return f"{found['types']} -->\n\n{markdown_table(chosen)}\n\n"

    return _TABLE.sub(made, text)


def markdown_table(types: Mapping[str, type[IndexOptions]]) -> str:
    """One row for each option, or for each group of types that differ in its values."""
    several = len(types) > 1
    rows = [["option", *(["types"] if several else []), "values", "default", "meaning"]]
    rows.append(["---"] * len(rows[0]))
    for shared in shared_options(types):
        for number, variant in enumerate(shared.variants):
            option = variant.option
            taken_by = "all" if len(variant.types) == len(types) else f"`{types_text(variant.types, types)}`"
            default = option.default_text if option.default is None else f"`{option.default!r}`"
            row = [
                f"`{shared.name}`",
                *([taken_by] if several else []),
                option.values_text or TYPE_WORDS[option.type],
                default,
            ]
            rows.append([*row, option.help if not number else "the same"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows).replace("| --- ", "|---").replace("--- |", "---|")
