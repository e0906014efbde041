"""The one exception that a user is meant to read."""


class PlmclError(Exception):
    """Bad input or an unmet condition: one line that names what, which rule and which value.

    Anything else that escapes is a defect of ours and keeps its traceback.
    """

    exit_code = 2
