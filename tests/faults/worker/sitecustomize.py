"""Loaded by the Python daemon of the sessions that `on_spark` starts: its workers fail as the control file says.

Each loads the faults for itself after the fork, because pylance must not be there before.
"""

import os
import sys

if "PENNON_TEST_FAULTS" in os.environ and "pyspark.daemon" in sys.orig_argv:

    def _install() -> None:
        from tests.faults.workers import install

        install()

    os.register_at_fork(after_in_child=_install)
