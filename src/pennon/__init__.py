"""Pennon builds, maintains and queries the indices of Lance tables on Spark.

Names are imported when they are first used, so that `pennon --help` does not wait for pylance.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pennon import errors

if TYPE_CHECKING:
    from pennon.engine.progress import ProgressListener
    from pennon.events import Event, EventKind, Subscription, on_event
    from pennon.index.bitmap.options import Bitmap, LabelList
    from pennon.index.btree.options import BTree
    from pennon.index.inverted.options import Inverted
    from pennon.index.ngram.options import NGram
    from pennon.index.vector.options import IvfFlat, IvfHnswFlat, IvfHnswPq, IvfHnswSq, IvfPq, IvfRq, IvfSq
    from pennon.index.zones.options import BloomFilter, ZoneMap
    from pennon.jobs.audit.report import AuditReport
    from pennon.jobs.clean_orphans import CleanedOrphans
    from pennon.jobs.compact.plan import CompactPlan
    from pennon.jobs.drop_index import DropPlan
    from pennon.jobs.fragment_reuse.catch_up import CatchUpPlan
    from pennon.jobs.fragment_reuse.trim import TrimPlan
    from pennon.jobs.maintain import MaintenancePolicy, MaintenanceReport
    from pennon.jobs.optimize.steps import OptimizePlan
    from pennon.jobs.results import IndexResult, Result, TrimResult, UpdateResult
    from pennon.jobs.update_column import UpdatePlan
    from pennon.query.inventory import Index, IndexList, ReuseInfo, Segment
    from pennon.query.scan.explain import Explanation
    from pennon.query.scan.request import ColumnOrdering
    from pennon.query.search.explain import SearchExplanation
    from pennon.query.text.explain import TextExplanation
    from pennon.table import Table
    from pennon.table import open_table as open

    __version__: str

__all__ = [
    "AuditReport",
    "BTree",
    "Bitmap",
    "BloomFilter",
    "CatchUpPlan",
    "CleanedOrphans",
    "ColumnOrdering",
    "CompactPlan",
    "DropPlan",
    "Event",
    "EventKind",
    "Explanation",
    "Index",
    "IndexList",
    "IndexResult",
    "Inverted",
    "IvfFlat",
    "IvfHnswFlat",
    "IvfHnswPq",
    "IvfHnswSq",
    "IvfPq",
    "IvfRq",
    "IvfSq",
    "LabelList",
    "MaintenancePolicy",
    "MaintenanceReport",
    "NGram",
    "OptimizePlan",
    "ProgressListener",
    "Result",
    "ReuseInfo",
    "SearchExplanation",
    "Segment",
    "Subscription",
    "Table",
    "TextExplanation",
    "TrimPlan",
    "TrimResult",
    "UpdatePlan",
    "UpdateResult",
    "ZoneMap",
    "errors",
    "on_event",
    "open",
]

_MODULES = {
    "AuditReport": "pennon.jobs.audit.report",
    "BTree": "pennon.index.btree.options",
    "Bitmap": "pennon.index.bitmap.options",
    "BloomFilter": "pennon.index.zones.options",
    "CatchUpPlan": "pennon.jobs.fragment_reuse.catch_up",
    "CleanedOrphans": "pennon.jobs.clean_orphans",
    "ColumnOrdering": "pennon.query.scan.request",
    "CompactPlan": "pennon.jobs.compact.plan",
    "DropPlan": "pennon.jobs.drop_index",
    "Event": "pennon.events",
    "EventKind": "pennon.events",
    "Explanation": "pennon.query.scan.explain",
    "Index": "pennon.query.inventory",
    "IndexList": "pennon.query.inventory",
    "IndexResult": "pennon.jobs.results",
    "Inverted": "pennon.index.inverted.options",
    "IvfFlat": "pennon.index.vector.options",
    "IvfHnswFlat": "pennon.index.vector.options",
    "IvfHnswPq": "pennon.index.vector.options",
    "IvfHnswSq": "pennon.index.vector.options",
    "IvfPq": "pennon.index.vector.options",
    "IvfRq": "pennon.index.vector.options",
    "IvfSq": "pennon.index.vector.options",
    "LabelList": "pennon.index.bitmap.options",
    "MaintenancePolicy": "pennon.jobs.maintain",
    "MaintenanceReport": "pennon.jobs.maintain",
    "NGram": "pennon.index.ngram.options",
    "OptimizePlan": "pennon.jobs.optimize.steps",
    "ProgressListener": "pennon.engine.progress",
    "Result": "pennon.jobs.results",
    "ReuseInfo": "pennon.query.inventory",
    "SearchExplanation": "pennon.query.search.explain",
    "Segment": "pennon.query.inventory",
    "Subscription": "pennon.events",
    "Table": "pennon.table",
    "TextExplanation": "pennon.query.text.explain",
    "TrimPlan": "pennon.jobs.fragment_reuse.trim",
    "TrimResult": "pennon.jobs.results",
    "UpdatePlan": "pennon.jobs.update_column",
    "UpdateResult": "pennon.jobs.results",
    "ZoneMap": "pennon.index.zones.options",
    "on_event": "pennon.events",
    "open": "pennon.table",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # From the metadata of the installed package. Executors may have the sources only.
        value = import_module("importlib.metadata").version("pennon")
    elif name in _MODULES:
        value = getattr(import_module(_MODULES[name]), "open_table" if name == "open" else name)
    else:
        raise AttributeError(f"module 'pennon' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, "__version__"})
