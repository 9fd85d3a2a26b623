"""Bitmap indices: for every value of a column the set of rows that have it, and for every label of a list column."""
