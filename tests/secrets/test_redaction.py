"""What opens a table is hidden in every spelling, and nothing else is."""

from __future__ import annotations

import json
import pickle

import pytest

from pennon.errors import DamagedIndexWarning, TableNotFound
from pennon.format.snapshot import Pin
from pennon.format.store import Location
from pennon.secrets import is_secret, redact, redact_address, redact_exception, register_secrets, remembered

SECRET = "Zq7/w+Xk=9vLmarker"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("aws_secret_access_key", SECRET, SECRET),
        ("aws_session_token", SECRET, "token Zq7%2Fw%2BXk%3D9vLmarker"),
        ("azure_storage_sas_token", f"sv=2020&sig={SECRET}", f"...&se=1&x={SECRET.replace('+', ' ')}"),
        ("google_service_account_key", json.dumps({"private_key": f"-----BEGIN\n{SECRET}\n"}), f"at {SECRET}"),
        ("google_service_account_key", f"-----BEGIN {SECRET}", str(list(f"-----BEGIN {SECRET}".encode()))),
        ("aws_endpoint", f"http://user:{SECRET}@host", f"GET http://user:{SECRET}@host/b"),
        ("azure_endpoint", f"https://host/?sig={SECRET}", f"with {SECRET}"),
        ("headers.authorization", f"Bearer {SECRET}", f"Bearer {SECRET}"),
        ("password", "hunter2", "the word hunter2."),
    ],
)
def test_every_spelling(key: str, value: str, said: str) -> None:
    Location.of("s3://bucket/t.lance", {key: value})
    hidden = redact(f"failed: {said} in eu-central-1")
    assert "***" in hidden
    assert SECRET not in hidden
    assert hidden.startswith("failed: ")
    assert hidden.endswith(" in eu-central-1")


def test_others_words_stay() -> None:
    Location.of("s3://bucket/t.lance", {"aws_access_key_id": "test", "aws_skip_signature": "true", "region": "moon"})
    assert redact("pytest found true in the latest moon") == "pytest found true in the latest moon"
    assert [is_secret(key, "x") for key in ("region", "aws_endpoint", "azure_storage_account_key")] == [
        False,
        False,
        True,
    ]


def test_addresses() -> None:
    shown = {
        "s3://bucket/t.lance": "s3://bucket/t.lance",
        "s3://user:pw@bucket/t.lance": "s3://user:***@bucket/t.lance",
        "az://c/t.lance?sv=1&sig=abc": "az://c/t.lance?***",
        "abfss://box@account.dfs.core.windows.net/t": "abfss://box@account.dfs.core.windows.net/t",
        "/tmp/a?b=1#c://u:p@h": "/tmp/a?b=1#c://u:p@h",
        "file:///tmp/t.lance": "file:///tmp/t.lance",
        "s3://bucket/a#b.lance": "s3://bucket/a#b.lance",
    }
    assert {uri: redact_address(uri) for uri in shown} == shown
    assert redact("GET https://a:b@c/d?X-Amz-Signature=abc&prefix=x") == (
        "GET https://a:***@c/d?X-Amz-Signature=***&prefix=x"
    )


def test_nothing_that_carries_a_location_shows_it() -> None:
    location = Location.of(f"s3://user:{SECRET}@bucket/t.lance?token={SECRET}", {"aws_secret_access_key": SECRET})
    again = pickle.loads(pickle.dumps(location))
    assert again == location
    assert again.uri.count(SECRET) == 2
    said = f"{location!r} {location} {Pin(location, 1, 'x')!r} {location.shown}"
    error = TableNotFound(f"no table at {location.uri} for {SECRET}", SECRET)
    said += f"{error} {error!r} {error.args} {error.problem} {pickle.loads(pickle.dumps(error))!r}"
    said += repr(DamagedIndexWarning(f"read with {SECRET}"))
    assert SECRET not in said


def test_errors_of_others_are_cleaned_with_their_causes() -> None:
    Location.of("s3://bucket/t.lance", {"aws_secret_access_key": SECRET})
    cause = OSError(f"signed with {SECRET}")
    error = ValueError(f"bad {SECRET}", 3)
    error.__cause__ = cause
    error.add_note(f"note {SECRET}")
    redact_exception(error)
    assert (error.args, str(cause), error.__notes__) == (("bad ***", 3), "signed with ***", ["note ***"])


def test_secrets_of_a_block_are_forgotten_after_it() -> None:
    register_secrets("s3://bucket/t.lance", {"password": "outer"})
    with remembered():
        register_secrets("s3://bucket/t.lance", {"password": "inner"})
        assert redact("outer inner") == "*** ***"
    assert redact("outer inner") == "*** inner"
