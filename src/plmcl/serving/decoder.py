"""A program that decodes images for the service: files in, a model's pixels out.

A decoder that crashes, hangs or eats memory takes down this process and nothing else.
`decoding` starts it, and says how they talk.
"""

import fcntl
import json
import os
import signal
import sys
from contextlib import suppress

from plmcl.data.doctor.worker import restrain
from plmcl.data.images import ImageProblem, Recipe, load

_PIPE_BYTES = 2**20


def main() -> None:
    """Read a line of setup, say `[]`, then answer each file.

    The setup is {"recipe", "seconds", "memory_bytes"}. A file is a line with its number of bytes,
    and the bytes. An answer is a line, a JSON list: empty, and the pixels follow, or
    [status, reason]. A file that takes longer than `seconds` ends the process, as the end of the
    input and of the other process do.
    """
    if sys.platform == "linux":  # pixels go in one piece, if the system allows it
        with suppress(OSError):
            fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    files, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    setup = json.loads(files.readline())
    recipe = Recipe.from_dict(setup["recipe"])
    restrain(setup["memory_bytes"])
    answers.write(b"[]\n")
    answers.flush()
    while line := files.readline():
        content = files.read(int(line))
        # Nobody catches the signal: it ends the process, in the midst of a decoder too.
        signal.setitimer(signal.ITIMER_REAL, setup["seconds"])
        try:
            pixels, problem = load(content, recipe).tobytes(), []
        except ImageProblem as error:
            pixels, problem = b"", [error.status, str(error)]
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps(problem).encode() + b"\n")
        answers.write(pixels)
        answers.flush()


if __name__ == "__main__":
    main()
