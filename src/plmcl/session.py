"""Open an ONNX file with ONNX Runtime: strict about providers, and its errors in plain words."""

import contextlib
import ctypes
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

from plmcl.errors import PlmclError

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def open_session(path: Path, *, providers: Sequence[str] | None, threads: int) -> Any:
    """An `onnxruntime.InferenceSession` that never changes its provider silently.

    Args:
        path: The ONNX file.
        providers: In order of preference; every one that is named must be there. None: CUDA
            where it works, else the CPU.
        threads: Of the network on the CPU.

    Raises:
        PlmclError: The file is missing or cannot be loaded, or the session lacks a provider.
    """
    if not path.is_file():
        raise PlmclError(f"{path}: {'not a file' if path.exists() else 'not found'}")
    available = ort.get_available_providers()
    # CUDA is listed wherever the runtime was built for it, with or without a GPU.
    usable = [
        provider
        for provider in (providers or (CUDA, CPU))
        if provider in available and (provider != CUDA or _has_cuda_driver())
    ]
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    # Threads that wait for work in a loop take the cores from those that decode: on two shared
    # cores an image took twice the time.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4  # what it would log is raised as well
    try:
        # It reports a failing provider on stdout, which is for predictions.
        with contextlib.redirect_stdout(sys.stderr):
            if CUDA in usable:
                ort.preload_dlls()  # pip's CUDA libraries are on no search path
            session = ort.InferenceSession(
                os.fspath(path),
                options,
                # The default, TF32, is not within the tolerance that an export is held to.
                providers=[(p, {"use_tf32": "0"}) if p == CUDA else p for p in usable or [CPU]],
            )
    except Exception as error:  # a kind of its own for each status code
        raise PlmclError(f"{path}: {_explain(error)}") from None
    session.disable_fallback()
    real = session.get_providers()
    for provider in providers or ():
        if provider not in real:
            needs = f"; needs onnxruntime-gpu, an NVIDIA driver, CUDA {ort.cuda_version}, cuDNN 9"
            raise PlmclError(
                f"{path}: asked for {provider}, but the session has {', '.join(real)} (this "
                f"onnxruntime knows {', '.join(available)}){needs if provider == CUDA else ''}"
            )
    return session


def _explain(error: Exception) -> str:
    """ONNX Runtime's message, which begins with C++ paths and types, in a user's words."""
    text = " ".join(str(error).split())
    runtime = f"onnxruntime {ort.__version__}"
    opset = r"Opset (\d+) is under development.* for domain (\S+) is till opset (\d+)"
    version = r"Unsupported model IR version: (\d+), max supported IR version: (\d+)"
    upgrade = "upgrade onnxruntime or export again"
    if match := re.search(opset, text):
        has, domain, reads = match.groups()
        of = "" if domain == "ai.onnx" else f" of {domain}"
        return f"model has opset {has}{of}, this runtime ({runtime}) reads up to {reads}; {upgrade}"
    if match := re.search(version, text):
        has, reads = match.groups()
        return (
            f"model has IR version {has}, this runtime ({runtime}) reads up to {reads}; {upgrade}"
        )
    if "Protobuf parsing failed" in text or "No graph was found" in text:
        return "not an ONNX file, or a damaged one"
    reason = re.sub(r"^.* failed:(/\S+ .*?\) )?", "", text)
    return f"{runtime} cannot load it: {reason:.300}"


def _has_cuda_driver() -> bool:
    try:
        ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return False
    return True
