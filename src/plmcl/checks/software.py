"""Installed versions against what this package asks for, and ONNX Runtime's providers, tried."""

import contextlib
import importlib.metadata
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from plmcl.checks.finding import Finding
from plmcl.errors import PlmclError
from plmcl.session import CPU, CUDA, has_cuda_driver, open_session

SHOWN = ("torch", "onnxruntime", "onnxruntime-gpu", "dvc", "mlflow", "prefect")
# y = -x of one float, as ONNX: any runtime reads it, and the `onnx` package need not be there.
NEGATION = (
    b'\x08\x08:2\n\x0b\n\x01x\x12\x01y"\x03Neg\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n'
    b"\x02\x08\x01b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\r"
)


def versions(*, training: bool) -> Iterator[Finding]:
    """Python and all packages that the installed plmcl names.

    Args:
        training: Whether something that is missing will be missed: serving needs less.
    """
    shown = [f"Python {platform.python_version()}"]
    met = 0
    for requirement in map(Requirement, importlib.metadata.requires("plmcl") or ()):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        found = _version(requirement.name)
        if found is None:
            yield Finding(
                "versions",
                "problem" if training else "warning",
                f"{requirement.name} is not installed",
                f"pip install '{requirement.name}{requirement.specifier}'"
                + ("" if training else "; not needed to predict or serve"),
            )
        elif not requirement.specifier.contains(found, prereleases=True):
            yield Finding(
                "versions",
                "problem",
                f"{requirement.name} {found}, and {requirement.specifier} is needed",
                f"pip install '{requirement.name}{requirement.specifier}'",
            )
        else:
            met += 1
    shown += [f"{name} {found}" for name in SHOWN if (found := _version(name))]
    yield Finding("versions", "ok", f"{', '.join(shown)}; {met} requirements met")
    if _version("onnxruntime") and _version("onnxruntime-gpu"):
        yield Finding(
            "versions",
            "warning",
            "onnxruntime and onnxruntime-gpu are both installed, into one folder",
            "pip uninstall both, then install the one that is wanted",
        )


def providers() -> Iterator[Finding]:
    """A session with each provider that ONNX Runtime lists, and one number through it."""
    import onnxruntime as ort

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "negation.onnx")
        path.write_bytes(NEGATION)
        for provider in ort.get_available_providers():
            yield _tried(provider, path)


def _tried(provider: str, path: Path) -> Finding:
    import numpy as np

    name = "onnxruntime"
    if provider != CPU and ("CUDA" in provider or "Tensorrt" in provider) and not has_cuda_driver():
        return Finding(name, "ok", f"{provider}: listed, cannot be used: no NVIDIA driver here")
    try:
        with _quiet_stderr():
            session = open_session(path, providers=[provider], threads=1)
            (answer,) = session.run(None, {"x": np.array([2], np.float32)})
    except PlmclError as error:
        reason = str(error).removeprefix(f"{path}: ")
        if provider not in (CPU, CUDA):  # nothing here uses it unasked
            return Finding(name, "ok", f"{provider}: listed, does not load; nothing here needs it")
        advice = "install its libraries, or predictions and the service run on the CPU"
        return Finding(name, "problem" if provider == CPU else "warning", reason, advice)
    except Exception as error:  # a kind of its own for each status code
        reason = str(error).splitlines()[0]
        return Finding(name, "problem", f"{provider}: loads and fails: {reason:.300}")
    if answer.tolist() != [-2]:
        return Finding(name, "problem", f"{provider}: -2 was expected, {answer.tolist()} came out")
    return Finding(name, "ok", f"{provider}: loads and computes")


@contextlib.contextmanager
def _quiet_stderr() -> Iterator[None]:
    # A provider that fails says so in C++, past sys.stderr; it is said here in a line of its own.
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
