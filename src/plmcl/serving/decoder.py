"""A program that decodes images for the service: files in, a model's pixels into shared memory.

A decoder that crashes, hangs or eats memory takes down this process and nothing else.
`decoding` starts it, and says how they talk.
"""

import json
import mmap
import os
import signal
import sys

import numpy as np

from plmcl.data.doctor.worker import restrain
from plmcl.data.images import ImageProblem, Recipe, load


def main() -> None:
    """Read a line of setup, say `[]`, then answer each file.

    The setup is {"recipe", "seconds", "memory_bytes", "pixels"}, the last the descriptor of a file
    of size x size x 3 bytes. An image is a line with its number of bytes, and the bytes. An answer
    is a line, a JSON list: empty, and the pixels are there, or [status, reason]. An image that
    takes longer than `seconds` ends the process, as the end of the input and of the other process
    do.
    """
    files, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    setup = json.loads(files.readline())
    recipe = Recipe.from_dict(setup["recipe"])
    pixels = np.frombuffer(mmap.mmap(setup["pixels"], 0), np.uint8)
    pixels = pixels.reshape(recipe.size, recipe.size, 3)
    restrain(setup["memory_bytes"])
    answers.write(b"[]\n")
    answers.flush()
    while line := files.readline():
        content = files.read(int(line))
        # Nobody catches the signal: it ends the process, in the midst of a decoder too.
        signal.setitimer(signal.ITIMER_REAL, setup["seconds"])
        try:
            pixels[:] = load(content, recipe)
            problem = []
        except ImageProblem as error:
            problem = [error.status, str(error)]
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps(problem).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
