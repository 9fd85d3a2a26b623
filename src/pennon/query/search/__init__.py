"""Nearest neighbors: probed partitions of index segments, and fragments that none covers measured exactly."""
