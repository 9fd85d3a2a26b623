"""Pennon builds, keeps and queries the indices of Lance tables on Spark."""

from pennon import errors
from pennon.query.explain import Explanation
from pennon.query.inventory import Index, Segment
from pennon.query.search.explain import SearchExplanation
from pennon.table import Table
from pennon.table import open_table as open

__version__ = "0.1.0"

__all__ = ["Explanation", "Index", "SearchExplanation", "Segment", "Table", "errors", "open"]
