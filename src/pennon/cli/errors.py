"""Errors in one line: the problem and the remedy, and never a secret."""

from __future__ import annotations

import errno
import json
import re
import traceback
from dataclasses import dataclass, field
from typing import Any

import click

from pennon.errors import PennonError, StoreUnavailable
from pennon.secrets import redact, redact_pairs
from pennon.wording import escape_controls

# What sysexits.h calls EX_TEMPFAIL: the same command may succeed later.
TRY_AGAIN = 75
# Where in pylance's own source an error was made; of no use to the user.
ORIGIN = re.compile(r", \S*\.rs:\d+:\d+.*$")


@dataclass
class Settings:
    """What holds for the whole command."""

    debug: bool = False
    quiet: bool = False
    json: bool = False
    storage: dict[str, str] = field(default_factory=dict[str, str], repr=False)


def settings_of(ctx: click.Context | None = None) -> Settings:
    """Those of the running command; made on demand if there is none, as during completion."""
    root = (ctx or click.get_current_context()).find_root()
    return root.ensure_object(Settings)


class PlainErrors(click.Group):
    """Exit codes: 0 done, 1 an error, 2 wrong usage, 75 the store did not answer this time, 130 interrupted."""

    def invoke(self, ctx: click.Context) -> Any:
        settings = settings_of(ctx)
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            # Perhaps a storage option whose --storage-option was forgotten.
            shown = escape_controls(redact_pairs(error.message))
            if shown == error.message:
                raise
            raise click.UsageError(shown, error.ctx) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            click.echo("interrupted; unfinished work is not committed", err=True)
            ctx.exit(130)
        except Exception as error:  # a user wants a sentence for any error
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # `pennon scan ... | head` has what it wants; click ends the command without a word
            if settings.debug:
                print_error(traceback.format_exc())
            print_error(f"error: {sentence(error)}")
            if settings.json:
                click.echo(json.dumps(described(error), ensure_ascii=False, indent=2))
            ctx.exit(TRY_AGAIN if isinstance(error, StoreUnavailable) and error.retryable else 1)


def described(error: Exception) -> dict[str, Any]:
    """An error as `--output json` prints it, where a result would be."""
    known = isinstance(error, PennonError)
    return {
        "status": "failed",
        "error": type(error).__name__ if known else "Exception",
        "problem": error.problem if known else escape_controls(redact(sentence(error))),
        "remedy": error.remedy if known else "",
        "retryable": isinstance(error, StoreUnavailable) and error.retryable,
    }


def print_error(text: str) -> None:
    """Prints it on the error stream, without secrets and without what steers a terminal."""
    click.echo(escape_controls(redact(text)), err=True)


def sentence(error: Exception) -> str:
    """An error as one line."""
    if isinstance(error, PennonError):
        return " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        what = f"{type(error).__name__}: {ORIGIN.sub('', lines[0])}" if lines else type(error).__name__
    return f"{what}. `--debug` shows where it came from"
