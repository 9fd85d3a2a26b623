"""Searches for vectors and words at once, whose results are fused."""
