"""The text join: the rows of a DataFrame of queries with the rows that match them best."""
