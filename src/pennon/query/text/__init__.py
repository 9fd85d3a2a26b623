"""Text search: matches and phrases by inverted indices, and in rows that none covers by a scan, scored by BM25."""
