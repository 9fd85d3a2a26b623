"""Inverted indices: built by documents, merged by partitions, audited by the lengths of documents."""
