"""Pennon builds, maintains and queries the indices of Lance tables on Spark.

Names are imported when they are first used, so that `pennon --help` does not wait for pylance.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pennon import errors

if TYPE_CHECKING:
    from pennon.engine.engine import Engine
    from pennon.engine.progress import ProgressListener
    from pennon.events import Event, EventKind, Subscription, on_event
    from pennon.format.cleanup import Orphan
    from pennon.format.disk_cache import DiskCacheStatistics
    from pennon.index.bitmap.options import Bitmap, LabelList
    from pennon.index.btree.options import BTree
    from pennon.index.cache import CacheStatistics, CacheUse
    from pennon.index.inverted.options import Inverted
    from pennon.index.ngram.options import NGram
    from pennon.index.options import IndexOptions
    from pennon.index.rtree.options import RTree
    from pennon.index.vector.options import IvfFlat, IvfHnswFlat, IvfHnswPq, IvfHnswSq, IvfPq, IvfRq, IvfSq
    from pennon.index.zones.options import BloomFilter, ZoneMap
    from pennon.jobs.audit.report import AuditReport, Finding
    from pennon.jobs.clean_orphans import CleanedOrphans
    from pennon.jobs.compact.plan import CompactionChoices, CompactPlan, IndexEffect
    from pennon.jobs.drop_index import DropPlan
    from pennon.jobs.fragment_reuse.catch_up import CatchUpPlan
    from pennon.jobs.fragment_reuse.trim import TrimPlan
    from pennon.jobs.kinds import BuildPlan
    from pennon.jobs.lookup_join.join import OnLike
    from pennon.jobs.lookup_join.plan import LookupJoinPlan
    from pennon.jobs.maintain import Decision, MaintenancePolicy, MaintenanceReport, MaintenanceStatus
    from pennon.jobs.merge.clauses import Delete, Insert, Update
    from pennon.jobs.near_duplicates.plan import NearDuplicatesPlan
    from pennon.jobs.optimize.steps import IndexStep, OptimizePlan
    from pennon.jobs.results import IndexResult, Result, RowsResult, TrimResult, UpdateResult
    from pennon.jobs.rows.plan import RowsPlan
    from pennon.jobs.tune.advice import IndexAdvice, IndexCandidate
    from pennon.jobs.tune.result import TunedSetting, TuningResult
    from pennon.jobs.update_column import UpdatePlan
    from pennon.query.catalog import Skipped
    from pennon.query.filter.reading import FilterLike
    from pennon.query.hybrid.run import HybridOptions
    from pennon.query.inventory import Index, IndexList, ReuseInfo, ReuseVersionInfo, Segment
    from pennon.query.scan.explain import Explanation, IndexUse
    from pennon.query.scan.request import ColumnOrdering, ColumnsLike, ScanOptions
    from pennon.query.search.expected import ExpectedRecall
    from pennon.query.search.explain import FilterUse, SearchExplanation, SegmentUse
    from pennon.query.search.query_vectors import VectorLike
    from pennon.query.search.request import SearchOptions
    from pennon.query.text.explain import TextExplanation
    from pennon.query.text.request import TextColumnsLike, TextLike, TextOptions
    from pennon.query.warm import Warmed, WarmedIndex
    from pennon.report.data import ReportData
    from pennon.table import Table
    from pennon.table import open_table as open
    from pennon.table.frames import Selection
    from pennon.table.merging import DeleteLike, InsertLike, MatchedLike, SourceLike
    from pennon.work import Work

    __version__: str

__all__ = [
    "AuditReport",
    "BTree",
    "Bitmap",
    "BloomFilter",
    "BuildPlan",
    "CacheStatistics",
    "CacheUse",
    "CatchUpPlan",
    "CleanedOrphans",
    "ColumnOrdering",
    "ColumnsLike",
    "CompactPlan",
    "CompactionChoices",
    "Decision",
    "Delete",
    "DeleteLike",
    "DiskCacheStatistics",
    "DropPlan",
    "Engine",
    "Event",
    "EventKind",
    "ExpectedRecall",
    "Explanation",
    "FilterLike",
    "FilterUse",
    "Finding",
    "HybridOptions",
    "Index",
    "IndexAdvice",
    "IndexCandidate",
    "IndexEffect",
    "IndexList",
    "IndexOptions",
    "IndexResult",
    "IndexStep",
    "IndexUse",
    "Insert",
    "InsertLike",
    "Inverted",
    "IvfFlat",
    "IvfHnswFlat",
    "IvfHnswPq",
    "IvfHnswSq",
    "IvfPq",
    "IvfRq",
    "IvfSq",
    "LabelList",
    "LookupJoinPlan",
    "MaintenancePolicy",
    "MaintenanceReport",
    "MaintenanceStatus",
    "MatchedLike",
    "NGram",
    "NearDuplicatesPlan",
    "OnLike",
    "OptimizePlan",
    "Orphan",
    "ProgressListener",
    "RTree",
    "ReportData",
    "Result",
    "ReuseInfo",
    "ReuseVersionInfo",
    "RowsPlan",
    "RowsResult",
    "ScanOptions",
    "SearchExplanation",
    "SearchOptions",
    "Segment",
    "SegmentUse",
    "Selection",
    "Skipped",
    "SourceLike",
    "Subscription",
    "Table",
    "TextColumnsLike",
    "TextExplanation",
    "TextLike",
    "TextOptions",
    "TrimPlan",
    "TrimResult",
    "TunedSetting",
    "TuningResult",
    "Update",
    "UpdatePlan",
    "UpdateResult",
    "VectorLike",
    "Warmed",
    "WarmedIndex",
    "Work",
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
    "BuildPlan": "pennon.jobs.kinds",
    "CacheStatistics": "pennon.index.cache",
    "CacheUse": "pennon.index.cache",
    "CatchUpPlan": "pennon.jobs.fragment_reuse.catch_up",
    "CleanedOrphans": "pennon.jobs.clean_orphans",
    "ColumnOrdering": "pennon.query.scan.request",
    "ColumnsLike": "pennon.query.scan.request",
    "CompactPlan": "pennon.jobs.compact.plan",
    "CompactionChoices": "pennon.jobs.compact.plan",
    "Decision": "pennon.jobs.maintain",
    "Delete": "pennon.jobs.merge.clauses",
    "DeleteLike": "pennon.table.merging",
    "DiskCacheStatistics": "pennon.format.disk_cache",
    "DropPlan": "pennon.jobs.drop_index",
    "Engine": "pennon.engine.engine",
    "Event": "pennon.events",
    "EventKind": "pennon.events",
    "ExpectedRecall": "pennon.query.search.expected",
    "Explanation": "pennon.query.scan.explain",
    "FilterLike": "pennon.query.filter.reading",
    "FilterUse": "pennon.query.search.explain",
    "Finding": "pennon.jobs.audit.report",
    "HybridOptions": "pennon.query.hybrid.run",
    "Index": "pennon.query.inventory",
    "IndexAdvice": "pennon.jobs.tune.advice",
    "IndexCandidate": "pennon.jobs.tune.advice",
    "IndexEffect": "pennon.jobs.compact.plan",
    "IndexList": "pennon.query.inventory",
    "IndexOptions": "pennon.index.options",
    "IndexResult": "pennon.jobs.results",
    "IndexStep": "pennon.jobs.optimize.steps",
    "IndexUse": "pennon.query.scan.explain",
    "Insert": "pennon.jobs.merge.clauses",
    "InsertLike": "pennon.table.merging",
    "Inverted": "pennon.index.inverted.options",
    "IvfFlat": "pennon.index.vector.options",
    "IvfHnswFlat": "pennon.index.vector.options",
    "IvfHnswPq": "pennon.index.vector.options",
    "IvfHnswSq": "pennon.index.vector.options",
    "IvfPq": "pennon.index.vector.options",
    "IvfRq": "pennon.index.vector.options",
    "IvfSq": "pennon.index.vector.options",
    "LabelList": "pennon.index.bitmap.options",
    "LookupJoinPlan": "pennon.jobs.lookup_join.plan",
    "MaintenancePolicy": "pennon.jobs.maintain",
    "MaintenanceReport": "pennon.jobs.maintain",
    "MaintenanceStatus": "pennon.jobs.maintain",
    "MatchedLike": "pennon.table.merging",
    "NGram": "pennon.index.ngram.options",
    "NearDuplicatesPlan": "pennon.jobs.near_duplicates.plan",
    "OnLike": "pennon.jobs.lookup_join.join",
    "OptimizePlan": "pennon.jobs.optimize.steps",
    "Orphan": "pennon.format.cleanup",
    "ProgressListener": "pennon.engine.progress",
    "RTree": "pennon.index.rtree.options",
    "Result": "pennon.jobs.results",
    "ReportData": "pennon.report.data",
    "ReuseInfo": "pennon.query.inventory",
    "ReuseVersionInfo": "pennon.query.inventory",
    "RowsPlan": "pennon.jobs.rows.plan",
    "RowsResult": "pennon.jobs.results",
    "ScanOptions": "pennon.query.scan.request",
    "SearchExplanation": "pennon.query.search.explain",
    "SearchOptions": "pennon.query.search.request",
    "Segment": "pennon.query.inventory",
    "SegmentUse": "pennon.query.search.explain",
    "Selection": "pennon.table.frames",
    "Skipped": "pennon.query.catalog",
    "SourceLike": "pennon.table.merging",
    "Subscription": "pennon.events",
    "Table": "pennon.table",
    "TextColumnsLike": "pennon.query.text.request",
    "TextExplanation": "pennon.query.text.explain",
    "TextLike": "pennon.query.text.request",
    "TextOptions": "pennon.query.text.request",
    "TrimPlan": "pennon.jobs.fragment_reuse.trim",
    "TrimResult": "pennon.jobs.results",
    "TunedSetting": "pennon.jobs.tune.result",
    "TuningResult": "pennon.jobs.tune.result",
    "Update": "pennon.jobs.merge.clauses",
    "UpdatePlan": "pennon.jobs.update_column",
    "UpdateResult": "pennon.jobs.results",
    "VectorLike": "pennon.query.search.query_vectors",
    "Warmed": "pennon.query.warm",
    "WarmedIndex": "pennon.query.warm",
    "Work": "pennon.work",
    "ZoneMap": "pennon.index.zones.options",
    "on_event": "pennon.events",
    "open": "pennon.table",
}


# Public modules, which documents and messages name as `pennon.text.Match`.
_SUBMODULES = ("spark", "text")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # From the metadata of the installed package. Executors may have the sources only.
        value = import_module("importlib.metadata").version("pennon")
    elif name in _MODULES:
        value = getattr(import_module(_MODULES[name]), "open_table" if name == "open" else name)
    elif name in _SUBMODULES:
        value = import_module(f"pennon.{name}")
    else:
        raise AttributeError(f"module 'pennon' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_SUBMODULES, "__version__"})
