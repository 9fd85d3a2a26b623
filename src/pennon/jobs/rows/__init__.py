"""Delete, update and merge rows: executors find and write them, and one commit changes the table."""
