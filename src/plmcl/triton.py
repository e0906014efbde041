"""A model repository for NVIDIA's Triton Inference Server.

    <folder>/<name>/config.pbtxt         the model's ends, batches, and what the ONNX file says
    <folder>/<name>/labels.txt           a label a line, in the order of the outputs
    <folder>/<name>/<number>/model.onnx

Triton takes pixels and gives probabilities: decoding by the recipe and thresholds are its client's,
which finds both among the model's `parameters`.
"""

import json
import re
import shutil
import tempfile
from pathlib import Path

from plmcl.errors import PlmclError
from plmcl.inference import INPUT, OUTPUT, Tagger
from plmcl.session import CPU

MAX_BATCH = 64
QUEUE_MICROSECONDS = 5000
MODEL, CONFIG, LABELS = "model.onnx", "config.pbtxt", "labels.txt"


def write_repository(model: Path, folder: Path, *, name: str) -> Path:
    """Write a model's folder into a repository, in the place of one of that name.

    Args:
        model: The ONNX file. Of a promoted one, v0003, the version number is 3, else it is 1.
        folder: The repository; other models in it stay as they are.
        name: What clients ask for.

    Returns:
        The model's folder.

    Raises:
        PlmclError: The file is not one of ours, or the name or a label cannot be written.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise PlmclError(f"name: expected letters, digits, '_', '.' and '-', found {name!r:.80}")
    model = model.resolve()  # once: a champion's link may lead elsewhere a moment later
    tagger = Tagger(model, providers=[CPU])
    label_names = tagger.card.label_names
    for label in label_names:
        if label.splitlines() != [label]:
            raise PlmclError(f"label_names: {label!r:.80} cannot be one line of {LABELS}")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / name
    # Hidden folders are no models to Triton.
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}.") as scratch:
        making, old = Path(scratch) / "new", Path(scratch) / "old"
        number = re.fullmatch(r"v0*([1-9]\d*)", tagger.version)
        place = making / (number[1] if number else "1")
        place.mkdir(parents=True)
        shutil.copyfile(model, place / MODEL)
        (making / LABELS).write_text("".join(f"{n}\n" for n in label_names), encoding="utf-8")
        (making / CONFIG).write_text(config(tagger, name), encoding="utf-8")
        if target.exists():
            target.rename(old)
        making.rename(target)
    return target


def config(tagger: Tagger, name: str) -> str:
    """The text of config.pbtxt: a `ModelConfig` in protobuf's text format."""
    size = tagger.card.recipe.size
    described = tagger.card.to_metadata() | {"plmcl.sha256": json.dumps(tagger.sha256)}
    parameters = ",\n".join(
        f"  {{ key: {_quoted(key)}, value: {{ string_value: {_quoted(text)} }} }}"
        for key, text in described.items()
    )
    return f"""\
name: {_quoted(name)}
backend: "onnxruntime"
default_model_filename: "{MODEL}"
max_batch_size: {MAX_BATCH}
input [
  {{ name: "{INPUT}", data_type: TYPE_UINT8, dims: [ {size}, {size}, 3 ] }}
]
output [
  {{
    name: "{OUTPUT}", data_type: TYPE_FP32, dims: [ {len(tagger.card.label_names)} ]
    label_filename: "{LABELS}"
  }}
]
dynamic_batching {{ max_queue_delay_microseconds: {QUEUE_MICROSECONDS} }}
parameters [
{parameters}
]
"""


def _quoted(text: str) -> str:
    # The text is JSON or a name, and so without control characters.
    return '"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))
