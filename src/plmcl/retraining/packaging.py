"""An MLflow model that needs nothing of the project: the ONNX file, and the code that serves it."""

import importlib.metadata
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import plmcl

# All that `plmcl.pyfunc` imports: of ours, which goes along, and of others, beside the runtime.
_CODE = (
    "__init__.py", "buckets.py", "card.py", "errors.py", "inference.py", "machine.py", "pyfunc.py",
    "session.py",
    "data/__init__.py", "data/images.py", "data/decoding",
)  # fmt: skip
_REQUIREMENTS = ("mlflow", "numpy", "pandas", "pillow")


def save_package(model: Path, target: Path) -> None:
    """Write a folder that `mlflow.pyfunc.load_model` and `mlflow models serve` take.

    Args:
        model: The ONNX file; it keeps its name, below data/.
        target: The folder, which must not exist.
    """
    # It would take uv.lock and pyproject.toml of the current folder along.
    os.environ["MLFLOW_UV_AUTO_DETECT"] = "false"
    from mlflow.pyfunc import save_model

    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / "plmcl"
        _copy_code(code)
        save_model(
            path=str(target),
            loader_module="plmcl.pyfunc",
            data_path=str(model),
            code_paths=[str(code)],
            pip_requirements=_requirements(),
            model_config={"providers": None, "images": None},
        )


def _copy_code(target: Path) -> None:
    source = Path(plmcl.__file__).parent
    for name in _CODE:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source / name, target / name, ignore=ignored)
        else:
            shutil.copyfile(source / name, target / name)


def _requirements() -> list[str]:
    pinned = [f"{name}=={importlib.metadata.version(name)}" for name in _REQUIREMENTS]
    for runtime in ("onnxruntime-gpu", "onnxruntime"):
        with suppress(importlib.metadata.PackageNotFoundError):
            return [*pinned, f"{runtime}=={importlib.metadata.version(runtime)}"]
    return pinned
