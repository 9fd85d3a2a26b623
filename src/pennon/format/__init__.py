"""The on-disk format: manifests, index metadata, addresses, deletions, row ids, Lance files, commits.

The only room that imports pylance, whose API changes every few weeks.
"""

from typing import TYPE_CHECKING

from pennon.deferred import deferred
from pennon.format.local_file import OWN_READS
from pennon.work import register_meter

if TYPE_CHECKING:
    from lance import bytes_read_counter, iops_counter
else:
    bytes_read_counter = deferred("lance", "bytes_read_counter")
    iops_counter = deferred("lance", "iops_counter")

register_meter("bytes_read", lambda: bytes_read_counter() + OWN_READS.bytes)
register_meter("reads", lambda: iops_counter() + OWN_READS.reads)
