"""Writes the options of all index types as the help text of `create_index`: `python -m tools.make_option_help`.

A process that queries a table would otherwise import the modules of all index types to make it.
"""

from __future__ import annotations

from pathlib import Path

from pennon.index.option_text import options_text
from pennon.index.registry import index_types

MODULE = Path(__file__).parent.parent / "src" / "pennon" / "table" / "option_help.py"
OPENING, CLOSING = 'OPTIONS = """\\\n', '"""\n'


def main() -> None:
    MODULE.write_text(rewritten(MODULE.read_text()))


def rewritten(module: str) -> str:
    """The module with the options that index types have."""
    before, _, rest = module.partition(OPENING)
    _, _, after = rest.partition(CLOSING)
    return f"{before}{OPENING}{options_text(index_types())}\n{CLOSING}{after}"


if __name__ == "__main__":
    main()
