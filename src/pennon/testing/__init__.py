"""Tests for kinds of index: random histories of a table, an engine without Spark, and what answers are compared with.

Needs `pip install pennon[testing]` (hypothesis). Nothing else in Pennon imports this package.
"""
