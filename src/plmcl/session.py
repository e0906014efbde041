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
GPU_MEMORY = "PLMCL_GPU_MEMORY_MB"
# ONNX Runtime without CUDA does not say which one its sister with it is built for.
_CUDA_VERSION = ort.cuda_version or "13"


def open_session(
    path: Path,
    *,
    providers: Sequence[str] | None,
    threads: int,
    require_gpu: bool = False,
    tensor_cores: bool = False,
) -> Any:
    """An `onnxruntime.InferenceSession` that never changes its provider silently.

    On a GPU its memory grows by what is asked for, not by doubling, and not beyond the environment
    variable PLMCL_GPU_MEMORY_MB, if that is set.

    Args:
        path: The ONNX file.
        providers: In order of preference; every one that is named must be there. None: CUDA
            where it works, else the CPU.
        threads: Of the network on the CPU.
        require_gpu: Whether CUDA must be among the session's providers, named or not.
        tensor_cores: Whether a GPU may use them, which rounds fp32 to TF32: not within the
            tolerance that an export is held to. Half precision is no faster without them.

    Raises:
        PlmclError: The file is missing or cannot be loaded, the session lacks a provider, or
            PLMCL_GPU_MEMORY_MB is no whole number from 1.
    """
    if not path.is_file():
        raise PlmclError(f"{path}: {'not a file' if path.exists() else 'not found'}")
    if require_gpu and CUDA not in (providers or ()):
        providers = [CUDA, *(providers or ())]
    cuda_options = _cuda_options(tensor_cores=tensor_cores)
    available = ort.get_available_providers()
    # CUDA is listed wherever the runtime was built for it, with or without a GPU.
    usable = [
        provider
        for provider in (providers or (CUDA, CPU))
        if provider in available and (provider != CUDA or has_cuda_driver())
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
                providers=[(p, cuda_options) if p == CUDA else p for p in usable or [CPU]],
            )
    except Exception as error:  # a kind of its own for each status code
        raise PlmclError(f"{path}: {_explain(error)}") from None
    session.disable_fallback()
    real = session.get_providers()
    for provider in providers or ():
        if provider not in real:
            needs = f"; needs onnxruntime-gpu, an NVIDIA driver, CUDA {_CUDA_VERSION}, cuDNN 9"
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


def _cuda_options(*, tensor_cores: bool) -> dict[str, str]:
    options = {
        # ONNX Runtime keeps convolutions of every precision off the tensor cores by it.
        "use_tf32": str(int(tensor_cores)),
        "arena_extend_strategy": "kSameAsRequested",
    }
    if (text := os.environ.get(GPU_MEMORY, "")) != "":
        if not (text.isascii() and text.isdigit() and int(text) >= 1):
            raise PlmclError(f"{GPU_MEMORY}: expected a whole number from 1, found {text!r:.80}")
        options["gpu_mem_limit"] = str(int(text) * 2**20)
    return options


def has_cuda_driver() -> bool:
    """Whether NVIDIA's driver is there; it says nothing of a GPU or of CUDA's libraries."""
    try:
        ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return False
    return True
