"""All commands, by their purpose."""

from __future__ import annotations

import warnings
from typing import Any

import click

import pennon
from pennon.cli import audit, demo, report
from pennon.cli import cleanup as tidying
from pennon.cli import create_index as build
from pennon.cli import indices as inventory
from pennon.cli import knn_join as join
from pennon.cli import maintain as maintenance
from pennon.cli import query as queries
from pennon.cli.command import DEBUG_HELP, QUIET_HELP, Verbs
from pennon.cli.completion import completion
from pennon.cli.errors import settings_of, tell


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help=DEBUG_HELP)
@click.option("--quiet", is_flag=True, help=QUIET_HELP)
@click.version_option(pennon.__version__, prog_name="pennon")
@click.pass_context
def main(ctx: click.Context, debug: bool, quiet: bool) -> None:
    """Build, keep and query the indices of Lance tables on Spark."""
    settings = settings_of(ctx)
    settings.debug, settings.quiet = debug, quiet
    if not debug:
        warnings.showwarning = _print_warning


main.add_purpose("Build", [build.create_index, build.drop_index, build.update_column])
main.add_purpose("Query", [queries.scan, queries.explain, queries.search, join.knn_join])
main.add_purpose(
    "Keep",
    [
        maintenance.optimize,
        maintenance.compact,
        tidying.catch_up,
        tidying.trim,
        tidying.clean_orphans,
        maintenance.maintain,
    ],
)
main.add_purpose("Look", [inventory.indices, inventory.fragment_reuse, audit.audit, report.report])
main.add_purpose("Begin", [demo.demo, completion])


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    tell(f"warning: {' '.join(str(message).split())}")
