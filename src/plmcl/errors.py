"""The one exception that a user is meant to read."""

import errno

# What the system says where a disk, a quota or a limit leaves no room for what is written.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class PlmclError(Exception):
    """Bad input or an unmet condition: one line that names what, which rule and which value.

    Anything else that escapes is a defect of ours and keeps its traceback.
    """

    exit_code = 2
