"""The tagger as MLflow calls it: each kind of input, and each kind of nonsense."""

import base64
import io

import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from PIL import Image
from tiny_model import SIZE, make_card, make_model

from plmcl import pyfunc
from plmcl.errors import PlmclError

LABELS = list(make_card().label_names)
# sigmoid((mean - 128) / 64) for means of 255, 0, 128
HIGH, LOW, HALF = 0.8791468, 0.119203, 0.5


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    monkeypatch.delenv("PLMCL_PROVIDERS", raising=False)
    monkeypatch.delenv("PLMCL_IMAGES", raising=False)


@pytest.fixture
def path(tmp_path):
    return str(make_model(tmp_path / "model.onnx"))


@pytest.fixture
def model(path):
    return pyfunc._load_pyfunc(path, {"providers": ["CPUExecutionProvider"], "images": None})


def png(colour, size=(20, 10)):
    content = io.BytesIO()
    Image.new("RGB", size, colour).save(content, "png")
    return content.getvalue()


def encoded(content):
    return base64.b64encode(content).decode()


def table(column, values, index=None):
    return pd.DataFrame({column: values}, index=index)


def test_base64_images_give_a_row_each_and_a_column_a_label(model):
    scores = model.predict(
        table("image", [encoded(png((255, 0, 128))), png((128, 255, 0))], index=[7, 3])
    )
    assert scores.columns.tolist() == LABELS
    assert scores.index.tolist() == [7, 3]
    np.testing.assert_allclose(scores, [[HIGH, LOW, HALF], [HALF, HIGH, LOW]], atol=1e-6)
    assert (scores.dtypes == np.float32).all()


def test_paths_are_read_below_the_folder_that_is_named(path, tmp_path, monkeypatch):
    (tmp_path / "images" / "in").mkdir(parents=True)
    (tmp_path / "images" / "in" / "a.png").write_bytes(png((255, 0, 128)))
    (tmp_path / "secret.png").write_bytes(png((255, 0, 128)))
    (tmp_path / "images" / "link.png").symlink_to(tmp_path / "secret.png")
    monkeypatch.setenv("PLMCL_IMAGES", str(tmp_path / "images"))
    model = pyfunc._load_pyfunc(path)
    scores = model.predict(table("path", ["in/a.png", str(tmp_path / "images" / "in" / "a.png")]))
    np.testing.assert_allclose(scores, [[HIGH, LOW, HALF]] * 2, atol=1e-6)
    for outside in ("../secret.png", "link.png", str(tmp_path / "secret.png"), "/etc/passwd"):
        with pytest.raises(MlflowException, match="path of row 0: not below the folder"):
            model.predict(table("path", [outside]))
    with pytest.raises(MlflowException, match="path of row 1: unreadable: No such file"):
        model.predict(table("path", ["in/a.png", "in/b.png"]))


def test_paths_are_refused_unless_a_folder_is_named(model, tmp_path):
    with pytest.raises(MlflowException, match="no paths are read unless PLMCL_IMAGES"):
        model.predict(table("path", [str(tmp_path / "model.onnx")]))


def test_pixels_give_the_same(model):
    pixels = np.zeros((70, SIZE, SIZE, 3), np.uint8)  # more than a batch
    pixels[:, :, :, 0], pixels[:, :, :, 2] = 255, 128
    scores = model.predict(pixels)
    np.testing.assert_allclose(scores, [[HIGH, LOW, HALF]] * 70, atol=1e-6)
    assert scores.index.tolist() == list(range(70))


def test_nothing_gives_an_empty_table(model):
    for empty in (table("image", []), np.empty((0, SIZE, SIZE, 3), np.uint8)):
        assert model.predict(empty).shape == (0, 3)


def test_a_table_longer_than_a_batch_is_answered_in_order(model):
    colours = [(i, 255 - i, 128) for i in range(0, 255, 3)]
    scores = model.predict(table("image", [png(colour) for colour in colours]))
    expected = 1 / (1 + np.exp(-(np.array(colours) - 128) / 64))
    np.testing.assert_allclose(scores, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("not base64!", "image of row 1: not base64: 'not base64!'"),
        (None, "image of row 1: expected base64 text, found NoneType"),
        (3.5, "image of row 1: expected base64 text, found float"),
        ("", "image of row 1: empty: "),
        (encoded(b"<html>"), "image of row 1: not_an_image: "),
        (encoded(png((1, 2, 3))[:-30]), "image of row 1: truncated: "),
        (encoded(png((1, 2, 3), (200, 100))), "image of row 1: too_large: "),
    ],
)
def test_an_image_that_cannot_be_used_is_refused_by_its_row(model, value, says):
    values = pd.Series([encoded(png((1, 2, 3))), value], dtype=object)
    with pytest.raises(MlflowException) as caught:
        model.predict(pd.DataFrame({"image": values}))
    assert str(caught.value).startswith(says)
    assert caught.value.get_http_status_code() == 400


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (pd.DataFrame({"file": ["a"]}), "expected one column of image and path, found: file"),
        (pd.DataFrame({"path": ["a"], "image": ["b"]}), "expected one column"),
        ({"image": ["a"]}, "expected a table or uint8 pixels, found dict"),
        (np.zeros((1, SIZE, SIZE, 3), np.float32), r"expected uint8 \(B, 8, 8, 3\), found float32"),
        (np.zeros((SIZE, SIZE, 3), np.uint8), r"found uint8 \(8, 8, 3\)"),
    ],
)
def test_input_of_another_kind_is_refused(model, given, says):
    with pytest.raises(MlflowException, match=says):
        model.predict(given)


def test_a_provider_that_is_not_there_is_refused_and_not_replaced(path, monkeypatch):
    """Case 77."""
    assert pyfunc._load_pyfunc(path).tagger.providers[-1] == "CPUExecutionProvider"
    with pytest.raises(PlmclError, match="asked for NoneSuch, but the session has"):
        pyfunc._load_pyfunc(path, {"providers": ["NoneSuch"]})
    monkeypatch.setenv("PLMCL_PROVIDERS", "CPUExecutionProvider")
    model = pyfunc._load_pyfunc(path, {"providers": ["NoneSuch"]})
    assert model.tagger.providers == ["CPUExecutionProvider"]
    monkeypatch.setenv("PLMCL_PROVIDERS", "CPUExecutionProvider, NoneSuch")
    with pytest.raises(PlmclError, match="asked for NoneSuch"):
        pyfunc._load_pyfunc(path)
