"""All commands, by their purpose. Their modules are imported when they are used: the help page needs none of them."""

from __future__ import annotations

import warnings
from typing import Any

import click

from pennon.cli.command import DEBUG_HELP, QUIET_HELP, ListedVerb, Verbs
from pennon.cli.errors import print_error, settings_of
from pennon.cli.versions import print_versions


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help=DEBUG_HELP)
@click.option("--quiet", is_flag=True, help=QUIET_HELP)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=print_versions,
    help="Show the versions of Pennon, pylance, PySpark and Java.",
)
@click.pass_context
def main(ctx: click.Context, debug: bool, quiet: bool) -> None:
    """Build, maintain and query the indices of Lance tables on Spark."""
    settings = settings_of(ctx)
    settings.debug, settings.quiet = debug, quiet
    if not debug:
        warnings.showwarning = _print_warning


main.add_purpose(
    "Build",
    ListedVerb("create_index", "create-index", "Build an index on a column."),
    ListedVerb("create_index", "drop-index", "Remove an index."),
)
main.add_purpose(
    "Change",
    ListedVerb("rows", "delete", "Delete the rows that a filter selects."),
    ListedVerb("rows", "update", "Set columns of rows to SQL expressions."),
    ListedVerb("rows", "merge", "Update and insert rows by key, from another table."),
)
main.add_purpose(
    "Query",
    ListedVerb("query", "scan", "Show the rows that a filter selects, through indices."),
    ListedVerb("query", "explain", "Show how a scan would run."),
    ListedVerb("query", "search", "Show the rows whose vectors are nearest to a query."),
    ListedVerb("tune", "tune", "Measure which search settings reach a recall."),
    ListedVerb("text", "search-text", "Show the rows whose text matches a query best."),
    ListedVerb("text", "search-hybrid", "Show the best matches by vector and text combined."),
    ListedVerb("joins", "knn-join", "Find the nearest rows for every row of another table."),
    ListedVerb("joins", "lookup-join", "Find the rows that have the keys of another table."),
    ListedVerb("joins", "text-join", "Find the best matches for every text of another table."),
    ListedVerb("duplicates", "near-duplicates", "Find rows whose vectors are nearly the same."),
)
main.add_purpose(
    "Maintain",
    ListedVerb("maintain", "optimize", "Cover new fragments and merge segments of indices."),
    ListedVerb("maintain", "compact", "Join fragments, drop deleted rows, update indices."),
    ListedVerb("cleanup", "catch-up", "Apply deferred compactions to index files."),
    ListedVerb("cleanup", "trim", "Remove records of compactions that are applied."),
    ListedVerb("cleanup", "clean-orphans", "Delete old files that belong to no version."),
    ListedVerb("maintain", "maintain", "Run whichever of the above are due, and report why."),
)
main.add_purpose(
    "Inspect",
    ListedVerb("indices", "indices", "List indices: type, columns, coverage, size."),
    ListedVerb("indices", "fragment-reuse", "Show compactions not yet applied to index files."),
    ListedVerb("audit", "audit", "Compare indices with the rows of the table, and repair."),
    ListedVerb("report", "report", "Draw fragments and indices as one HTML page."),
)
main.add_purpose(
    "Start",
    ListedVerb("demo", "demo", "Make tables, index them with Spark, and query them."),
    ListedVerb("completion", "completion", "Print a script for completion in bash, zsh or fish."),
)


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print_error(f"warning: {' '.join(str(message).split())}")
