"""The command that shows a table's indices in a browser."""

from __future__ import annotations

from contextlib import suppress
from typing import IO

import click

from pennon.cli.command import verb
from pennon.cli.options import on_table
from pennon.cli.render import print_json
from pennon.report.server import ReportServer
from pennon.table import Table
from pennon.wording import in_line


@verb(
    "report",
    example="pennon report events.lance -o report.html",
)
@on_table
@click.option(
    "-o",
    "--out",
    type=click.File("w", encoding="utf-8", lazy=True),
    metavar="FILE",
    help="File to write; - prints the report.",
)
@click.option(
    "--output",
    type=click.Choice(["html", "json"]),
    default="html",
    show_default=True,
    help="An HTML page, or its figures as JSON, which are printed without -o.",
)
@click.option(
    "--serve", is_flag=True, help="Serve the report to browsers on this machine; each visit shows the newest version."
)
@click.option("--port", type=click.IntRange(0, 65_535), help="Port of --serve.  [default: a free one]")
def report(table: Table, out: IO[str] | None, output: str, serve: bool, port: int | None) -> None:
    """Draw the fragments and indices of the table at URI, and what maintain would do, as one HTML page."""
    if output == "json":
        if serve or port is not None:
            raise click.UsageError("--serve cannot be combined with --output json")
        print_json(table.report_data(), out)
        return
    if serve == (out is not None):
        raise click.UsageError("use -o FILE or --serve")
    if port is not None and not serve:
        raise click.UsageError("--port requires --serve")
    if out is not None:
        out.write(table.report())
        return
    try:
        server = ReportServer(lambda: table.refresh().report(), port or 0)
    except OSError as error:
        raise click.UsageError(f"cannot listen on port {port}: {error.strerror}") from error
    with server, suppress(KeyboardInterrupt):
        click.echo(f"{server.url} shows {in_line(table.uri)}; stop with Ctrl-C")
        server.serve_forever()
