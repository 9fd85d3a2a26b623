"""Merge a source into a table by key: matched rows are updated or deleted, new ones inserted, in one commit."""
