"""The index report: what a table's indices cover, how even they are and what is due, as one page of HTML."""
