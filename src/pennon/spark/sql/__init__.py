"""Table functions of SQL: searches, lookups, scans, the inventory of indices, and plans."""
