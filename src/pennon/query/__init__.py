"""Answering a filter: parse it, split the table into what indices cover and what they do not, ask both, merge."""
