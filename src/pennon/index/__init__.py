"""The kinds of index: each knows to write, open, search, merge and remap a segment of its own."""
