import numpy as np
import pytest
from PIL import Image
from tiny_model import SIZE, make_model

from plmcl.inference import Tagger
from plmcl.session import CPU


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """See tiny_model."""
    return make_model(tmp_path_factory.mktemp("model") / "model.onnx")


@pytest.fixture(scope="session")
def tagger(model):
    return Tagger(model, providers=[CPU], threads=1)


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """25 images of noise in three folders, a broken one among them, and two other files."""
    folder = tmp_path_factory.mktemp("data") / "photos"
    rng = np.random.default_rng(0)
    for number in range(24):
        path = folder / "cba"[number % 3] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)).save(path)
    (folder / "b/broken.jpg").write_text("<html>404")
    (folder / "notes.txt").touch()
    (folder / "a/.hidden.png").touch()
    return folder
