"""A report is passed on, so nothing that opens the table may stand in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from pennon.format.store import Location

_SECRET_KEY = re.compile(r"key|secret|token|password|credential|sas|signature", re.IGNORECASE)
HIDDEN = "***"


@dataclass(frozen=True)
class Secrets:
    """Texts to replace, each with what is shown instead."""

    replaced: tuple[tuple[str, str], ...] = field(repr=False)

    @classmethod
    def of(cls, location: Location) -> Secrets:
        values = [(value, HIDDEN) for key, value in location.options if value and _SECRET_KEY.search(key)]
        # The address comes first: a secret in it may be cut into a value otherwise.
        return cls(((location.uri, _without_credentials(location)), *sorted(values, key=lambda pair: -len(pair[0]))))

    def hide(self, text: str) -> str:
        for secret, shown in self.replaced:
            text = text.replace(secret, shown)
        return text


def _without_credentials(location: Location) -> str:
    """An address may carry a user and password, or a signed query."""
    if location.local_root is not None:
        return location.uri
    parts = urlsplit(location.uri)
    user, at, host = parts.netloc.rpartition("@")
    # Azure names the container there: abfss://container@account; a password follows a colon.
    shown = f"{user.partition(':')[0]}{':' + HIDDEN if ':' in user else ''}{at}{host}"
    return urlunsplit((parts.scheme, shown, parts.path, HIDDEN if parts.query else "", ""))
