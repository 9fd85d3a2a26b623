"""The on-disk format: manifests, index metadata, addresses, deletions, row ids, Lance files, commits.

The only room that imports pylance, whose API changes every few weeks.
"""
