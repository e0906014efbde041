"""What this process may use of the machine."""

import os

from plmcl.machine import usable_cores


def test_usable_cores_are_those_of_this_process_not_of_the_machine():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert usable_cores() == len(allowed)
