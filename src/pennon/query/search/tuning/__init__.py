"""Recall that is asked for: what settings of a search give it, measured on the table, and what was stored of that."""
