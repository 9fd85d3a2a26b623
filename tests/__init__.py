"""The environment of a run, of this process and of those it starts. Set before numpy and faiss are loaded, and before
the first temporary file.

Their threads busy-wait for the next call, for milliseconds. Calls of tests are small: that waiting takes ten times the
CPU time of the work, and takes it from the other processes of a run. Threads that sleep give the same results.

Tables of tests are many small files: in memory, up to a tenth of the CPU time is saved, and no disk is waited for.
Only where the Makefile asks for it: heavy tests, and what else uses this package, may have more files than memory.
"""

import os
import tempfile
from pathlib import Path

# A run has a few hundred MiB of tables at once; its processes need the rest.
IN_MEMORY = "/dev/shm"
FREE_BYTES, AVAILABLE_BYTES = 4 << 30, 8 << 30

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")


def _has_room() -> bool:
    """Whether files may be in memory: JVMs load libraries that they have unpacked there."""
    try:
        system = os.statvfs(IN_MEMORY)
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except (OSError, AttributeError):  # not Linux
        return False
    memory = {name: int(rest.split()[0]) << 10 for name, _, rest in (line.partition(":") for line in lines)}
    executable = not system.f_flag & os.ST_NOEXEC and os.access(IN_MEMORY, os.W_OK)
    return (
        executable
        and system.f_bavail * system.f_frsize >= FREE_BYTES
        and memory.get("MemAvailable", 0) >= AVAILABLE_BYTES
    )


if os.environ.get("PENNON_TESTS_IN_MEMORY") and "TMPDIR" not in os.environ and _has_room():
    os.environ["TMPDIR"] = IN_MEMORY
    tempfile.tempdir = None
