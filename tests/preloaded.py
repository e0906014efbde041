"""A stand-in for `python` in the stages' commands, which has imported the large libraries already.

Each stage is a process of its own as ever, and imports all of the project's code from its own
folder; it is a fork of one process that holds torch, MLflow and the like, which take most of its
time otherwise. A list of the project's files that a stage imported is left in $TRACES, if set.

    python tests/preloaded.py SOCKET
"""

import importlib
import importlib.util
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

LIBRARIES = (
    "torch._dynamo",
    "timm",
    "lightning_fabric",
    "torch.onnx._internal.exporter._core",
    "onnxscript",
    "onnxruntime",
    "pandera.pandas",
    "scipy.optimize",
    "mlflow.store.tracking.sqlalchemy_store",
    "typer.main",
)

# Hands its arguments, folder, environment and files to the server, and ends as the stage does.
CLIENT = """#!{python} -IS
import json, os, socket, sys

with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    asked = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [len(asked).to_bytes(8, "big")], [0, 1, 2])
    server.sendall(asked)
    sys.exit(int(server.recv(8) or b"1"))
"""


@contextmanager
def preloaded_python(folder: Path) -> Iterator[Path]:
    """The folder of a `python` that knows `-m MODULE ARGUMENTS` alone, to be put on PATH."""
    address = str(folder / "socket")
    client = folder / "python"
    client.write_text(CLIENT.format(python=sys.executable, address=address))
    client.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, __file__, address],
        env=os.environ | {"DO_NOT_TRACK": "true", "MLFLOW_DISABLE_TELEMETRY": "true"},
    )
    try:
        while not Path(address).exists():
            assert process.poll() is None, "the libraries cannot be imported"
            time.sleep(0.05)
        yield folder
    finally:
        process.terminate()
        process.wait()


def serve(address: str) -> None:
    """Fork for one stage after the other, until ended."""
    for name in LIBRARIES:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a fork has none of the other threads"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    while True:
        connection, _ = listening.accept()
        length, files, _, _ = socket.recv_fds(connection, 8, 3)
        with connection.makefile("rb") as stream:
            arguments, folder, variables = json.loads(stream.read(int.from_bytes(length, "big")))
        child = os.fork()
        if not child:
            for number, file in enumerate(files):
                os.dup2(file, number)
            become(arguments, folder, variables)
        for file in files:
            os.close(file)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(str(status if status >= 0 else 128 - status).encode())
        connection.close()


def become(arguments: list[str], folder: str, variables: dict[str, str]) -> NoReturn:
    """Be `python -m MODULE ARGUMENTS` in a folder and an environment, and end as it does."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    option, module, *_ = arguments
    assert option == "-m", arguments
    added = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:1] = [folder, *(str(Path(folder, path)) for path in added)]
    importlib.invalidate_caches()
    sys.argv[:] = ["-m", *arguments[2:]]
    status = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    if "TRACES" in variables:
        write_trace(Path(folder), module)
    sys.stdout.flush()
    sys.stderr.flush()
    # The interpreter's own end would wait for threads of libraries, which a fork does not have.
    os._exit(status)


def write_trace(root: Path, module: str) -> None:
    """Write which files below src this process has imported."""
    files = [Path(m.__file__) for m in list(sys.modules.values()) if getattr(m, "__file__", None)]
    files.append(Path(importlib.util.find_spec(module).origin))
    read = sorted({str(f.relative_to(root)) for f in files if f.is_relative_to(root / "src")})
    Path(os.environ["TRACES"], os.environ["DVC_STAGE"] + ".json").write_text(json.dumps(read))


if __name__ == "__main__":
    serve(sys.argv[1])
