"""A real service in a process of its own, and what tests do to it."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from PIL import Image

MAIN = """
from plmcl.cli.serve import serve
from plmcl.stages.entry import run_stage
run_stage(serve)
"""


class Running:
    """Started on a free port of this machine; ended, if it still runs, when the tests are done."""

    def __init__(self, model, options=(), env=()):
        arguments = [str(word) for pair in dict(options).items() for word in pair]
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "--model", str(model), "--port", "0", *arguments],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "OMP_NUM_THREADS": "1",
                **dict(env),
            },
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.lines = []
        self.url = None
        for line in self.process.stderr:
            self.lines.append(line)
            if match := re.search(r"running on (http://\S+)", line):
                self.url = match[1]
                break
        assert self.url, "".join(self.lines)
        # Read on, or it would wait for somebody to read.
        self._reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr))
        self._reader.start()
        self.client = httpx.Client(base_url=self.url, timeout=20, trust_env=False)

    @property
    def port(self):
        return int(self.url.rpartition(":")[2])

    @property
    def log(self):
        return "".join(self.lines)

    def decoders(self):
        pid = self.process.pid
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    @contextmanager
    def decoders_stopped(self):
        """So that what is sent waits, however fast the machine is."""
        stopped = self.decoders()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield stopped
        finally:
            for pid in stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def metric(self, line):
        """The number behind a metric's name and labels; 0 where it is not there yet."""
        match = re.search(f"^{re.escape(line)} (.*)$", self.client.get("/metrics").text, re.M)
        return float(match[1]) if match else 0.0

    def wait_for_queue(self, images):
        wait_until(lambda: self.metric("plmcl_queue_images") == images)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(20)
        self._reader.join()
        self.process.stderr.close()


def wait_until(condition, seconds=10):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def picture(colour, size=(8, 8), kind="PNG"):
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, kind)
    return out.getvalue()


def files(*contents):
    """httpx's form of an upload: (name, bytes) pairs or bytes."""
    named = [c if isinstance(c, tuple) else (f"{i}.png", c) for i, c in enumerate(contents)]
    return [("images", (name, content)) for name, content in named]
