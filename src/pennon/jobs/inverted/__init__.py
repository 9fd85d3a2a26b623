"""Inverted indices: built by documents, merged by partitions, audited by the terms of documents."""
