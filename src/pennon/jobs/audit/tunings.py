"""Settings of searches that were measured and stored: whether the table still is what was measured."""

from __future__ import annotations

import warnings

from pennon.errors import DamagedIndexWarning
from pennon.format.snapshot import Snapshot
from pennon.index.cache import ByteCache
from pennon.jobs.audit.report import Finding, Severity
from pennon.query.catalog import Catalog
from pennon.query.search.tuning.doubts import doubtful_tunings
from pennon.query.search.tuning.record import read_tunings

CACHE_BYTES = 16 << 20


def check_tunings(snapshot: Snapshot) -> list[Finding]:
    """A warning for each that is doubtful."""
    if not read_tunings(snapshot):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedIndexWarning)  # the audit has found it
        doubtful = doubtful_tunings(Catalog.read(snapshot, ByteCache(CACHE_BYTES)))
    remedy = "Run `pennon tune --store` again"
    return [
        Finding(
            Severity.WARNING,
            None,
            (),
            f"the stored setting for a recall of {tuning.recall:.4g} at k={tuning.k} in column {tuning.column!r} is "
            f"doubtful: {'; '.join(reasons)}",
            remedy,
            figures={"recall": tuning.recall, "k": tuning.k},
        )
        for tuning, reasons in doubtful
    ]
