"""The B-tree: sorted (value, row address) pairs in pages, and a lookup of every page's smallest and largest value."""
