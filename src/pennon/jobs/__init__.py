"""One module a verb; each reads top to bottom as plan -> tasks -> results -> commit."""
