"""Set before numpy and faiss are loaded, by this process and those it starts.

Their threads busy-wait for the next call, for milliseconds. Calls of tests are small: that waiting takes ten times the
CPU time of the work, and takes it from the other processes of a run. Threads that sleep give the same results.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
