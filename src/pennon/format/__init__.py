"""What is on disk: manifests, index metadata, addresses, deletions, row ids, Lance files, commits.

The only room that touches pylance, whose surface changes every few weeks.
"""
