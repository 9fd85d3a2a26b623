"""Rows of a table by the values of key columns, many at once."""
