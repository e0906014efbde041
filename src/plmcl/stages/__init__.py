"""The stages of dvc.yaml, one file each: what it reads, which functions it calls, what it writes.

Each file is a command of its own (`python -m plmcl.stages.train …`), so that a stage depends on
the code that it runs and on no other stage's. Under DVC a stage ends when DVC does: DVC hands no
signal on, and a repeat would run beside it.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # of linux/prctl.h: the signal that a process gets when its parent dies

# Here, before a stage imports what takes seconds. While Python looks for the module that -m names,
# "-m" stands for it.
if sys.argv[:1] == ["-m"] and "DVC_STAGE" in os.environ and sys.platform == "linux":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
