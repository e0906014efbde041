"""The tagger as an MLflow model of the kind `python_function`.

`predict` takes one of
- a table with a column `image`: files' contents, as base64 text or as bytes;
- a table with a column `path`: paths below the folder PLMCL_IMAGES;
- uint8 pixels (B, size, size, 3), as `data.images.load` makes them;

and gives a table of probabilities: one row an image, one column a label.
"""

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from plmcl.data.images import ImageProblem, load
from plmcl.inference import Pixels, Tagger

BATCH_SIZE = 64
PROVIDERS, IMAGES = "PLMCL_PROVIDERS", "PLMCL_IMAGES"


class Model:
    """What MLflow calls.

    Args:
        tagger: The model.
        images: The folder that paths are below; None: paths are refused. A server's clients could
            otherwise ask for any file of the machine.
    """

    def __init__(self, tagger: Tagger, images: Path | None) -> None:
        self.tagger = tagger
        self._images = images

    def predict(self, model_input: pd.DataFrame | Pixels) -> pd.DataFrame:
        """Probabilities (B, L) in float32, with the labels as columns and the input's index.

        Raises:
            MlflowException: The input is of another kind, or an image of it cannot be used; the
                message names the row. A server answers it with status 400.
        """
        if isinstance(model_input, pd.DataFrame):
            index, pixels = model_input.index, self._decoded(model_input)
        elif isinstance(model_input, np.ndarray):
            index, pixels = pd.RangeIndex(len(model_input)), self._slices(model_input)
        else:
            _refuse(f"expected a table or uint8 pixels, found {type(model_input).__name__}")
        names = list(self.tagger.card.label_names)
        probs = [self.tagger.predict(batch) for batch in pixels]
        scores = np.concatenate([np.empty((0, len(names)), dtype=np.float32), *probs])
        return pd.DataFrame(scores, index=index, columns=names)

    def _slices(self, pixels: Pixels) -> Iterator[Pixels]:
        size = self.tagger.card.recipe.size
        if pixels.dtype != np.uint8 or pixels.shape[1:] != (size, size, 3):
            _refuse(
                f"pixels: expected uint8 (B, {size}, {size}, 3), found {pixels.dtype} "
                f"{pixels.shape}"
            )
        for start in range(0, len(pixels), BATCH_SIZE):
            yield pixels[start : start + BATCH_SIZE]

    def _decoded(self, table: pd.DataFrame) -> Iterator[Pixels]:
        columns = [name for name in ("image", "path") if name in table.columns]
        if len(columns) != 1:
            found = ", ".join(map(str, table.columns))
            _refuse(f"expected one column of image and path, found: {found:.200}")
        column = columns[0]
        read = self._content if column == "image" else self._file
        values = table[column].tolist()
        for start in range(0, len(values), BATCH_SIZE):
            batch = []
            for row, value in enumerate(values[start : start + BATCH_SIZE], start):
                try:
                    batch.append(load(read(value), self.tagger.card.recipe))
                except ImageProblem as problem:
                    _refuse(f"{column} of row {row}: {problem.status}: {problem}")
                except ValueError as error:
                    _refuse(f"{column} of row {row}: {error}")
            yield np.stack(batch)

    def _content(self, value: object) -> bytes:
        if isinstance(value, bytes):
            return value
        if not isinstance(value, str):
            raise ValueError(f"expected base64 text, found {type(value).__name__}")
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            raise ValueError(f"not base64: {value!r:.60}") from None

    def _file(self, value: object) -> Path:
        if self._images is None:
            raise ValueError(f"no paths are read unless {IMAGES} names the folder that they are in")
        if not isinstance(value, str):
            raise ValueError(f"expected a path, found {type(value).__name__}")
        folder = self._images.resolve()
        try:
            path = (folder / value).resolve()
        except (OSError, ValueError):  # a loop of links, a zero byte
            raise ValueError(f"not a path: {value!r:.200}") from None
        if not path.is_relative_to(folder):
            raise ValueError(f"not below the folder {IMAGES}: {value!r:.200}")
        return path


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> Model:
    """What MLflow calls to load the ONNX file.

    The providers of ONNX Runtime are those of the environment variable PLMCL_PROVIDERS (names,
    with commas between), or of `providers` in the model's configuration. A session that lacks one
    of them is refused: no silent CPU. Likewise PLMCL_IMAGES, or `images`.
    """
    config = model_config or {}
    given = os.environ.get(PROVIDERS, "")
    providers: Sequence[str] | None = [name.strip() for name in given.split(",") if name.strip()]
    folder = os.environ.get(IMAGES) or config.get("images")
    tagger = Tagger(Path(path), providers=providers or config.get("providers") or None)
    return Model(tagger, Path(folder) if folder else None)


def _refuse(why: str) -> NoReturn:
    from mlflow.exceptions import MlflowException

    raise MlflowException.invalid_parameter_value(why)
