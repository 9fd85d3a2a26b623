"""Pennon builds, keeps and queries the indices of Lance tables on Spark."""

from pennon import errors
from pennon.jobs.clean_orphans import CleanedOrphans
from pennon.jobs.compact import CompactPlan
from pennon.jobs.maintain import MaintenancePolicy, MaintenanceReport
from pennon.jobs.optimize import OptimizePlan
from pennon.jobs.plan_fragment_reuse import CatchUpPlan, TrimPlan
from pennon.query.inventory import Index, ReuseInfo, Segment
from pennon.query.scan.explain import Explanation
from pennon.query.search.explain import SearchExplanation
from pennon.table import Table
from pennon.table import open_table as open

__version__ = "0.1.0"

__all__ = [
    "CatchUpPlan",
    "CleanedOrphans",
    "CompactPlan",
    "Explanation",
    "Index",
    "MaintenancePolicy",
    "MaintenanceReport",
    "OptimizePlan",
    "ReuseInfo",
    "SearchExplanation",
    "Segment",
    "Table",
    "TrimPlan",
    "errors",
    "open",
]
