"""The versions of Pennon and of what it runs on, without importing any of it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import click

from pennon.errors import JavaNotFound

PACKAGES = ("pennon", "pylance", "pyspark")


def print_versions(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print them and end the command, if `--version` was given."""
    if not wanted or ctx.resilient_parsing:
        return
    for package in PACKAGES:
        click.echo(f"{package} {_installed(package)}")
    click.echo(f"java {_java()}")
    ctx.exit()


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _java() -> str:
    # The engine imports NumPy and Arrow, which the help page does not need.
    from pennon.engine.java import find_java  # noqa: PLC0415

    try:
        return str(find_java().version)
    except JavaNotFound as error:
        return error.problem
