"""Zones: runs of rows of a fragment with a summary of their values, a zone map's bounds or a Bloom filter."""
