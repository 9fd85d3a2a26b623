"""The reference pages are complete: every variable, setting, error and index type of the code is on its page."""

from __future__ import annotations

import re

from pennon import errors
from pennon.engine.settings import embedded_settings
from pennon.index.registry import index_types
from tests.docs.pages import ROOT

REFERENCE = ROOT / "docs" / "reference"
# Set by click for the completion of a shell.
INTERNAL = {"PENNON_COMPLETE"}


def page(name: str) -> str:
    return (REFERENCE / name).read_text("utf-8")


def test_every_environment_variable_is_listed() -> None:
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    used = set(re.findall(r"PENNON_[A-Z_]+", sources)) - INTERNAL
    assert len(used) >= 6
    assert used == set(re.findall(r"`(PENNON_[A-Z_]+)`", page("configuration.md")))


def test_every_setting_of_an_embedded_session_is_listed() -> None:
    text = page("configuration.md")
    assert [key for key in embedded_settings() if f"`{key}`" not in text] == []


def test_every_error_and_warning_is_listed() -> None:
    named = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert named == set(re.findall(r"^\| `(\w+)` \|", page("errors.md"), re.MULTILINE))


def test_every_index_type_is_listed_with_its_class() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| `pennon\.(\w+)` \|", page("index-options.md"), re.MULTILINE))
    assert listed == {name: options.__name__ for name, options in index_types().items()}
