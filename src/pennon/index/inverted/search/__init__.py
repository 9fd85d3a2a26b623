"""Searching partitions: the terms of a query, their posting lists, and the documents with the best scores."""
