"""The on-disk format: manifests, index metadata, addresses, deletions, row ids, Lance files, commits.

The only room that imports pylance, whose API changes every few weeks.
"""

from lance import bytes_read_counter, iops_counter

from pennon.work import register_meter

register_meter("bytes_read", bytes_read_counter)
register_meter("reads", iops_counter)
