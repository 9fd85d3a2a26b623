"""The kinds of index: each can write, open, search, merge and remap its segments."""
