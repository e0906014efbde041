import asyncio
import hashlib
import re

import numpy as np
import pytest
from tiny_model import make_card, make_model

from plmcl.errors import PlmclError
from plmcl.serving.limits import Limits
from plmcl.serving.model import Slot

NOISE = np.random.default_rng(1).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)


@pytest.fixture
def slot(tmp_path):
    path = make_model(tmp_path / "model.onnx")
    swaps = []
    made = Slot(path, Limits(batch=3), providers=None, on_swap=swaps.append)
    made.swaps, made.path = swaps, path
    return made


def refresh(slot):
    asyncio.run(slot.refresh())


def card(threshold, **changes):
    return make_card(thresholds=np.full(3, threshold, np.float32), **changes)


def test_the_version_is_the_files_hash(slot):
    assert slot.current.sha256 == hashlib.sha256(slot.path.read_bytes()).hexdigest()
    assert slot.current.name == f"{slot.path.parent.name}/model.onnx"


def test_a_file_that_stays_the_same_is_not_loaded_again(slot):
    before = slot.current
    refresh(slot)
    assert (slot.current, slot.swaps) == (before, [])


@pytest.mark.parametrize("how", ["renamed", "overwritten"])
def test_another_file_in_its_place_is_taken(slot, how):
    before = slot.current
    other = make_model(slot.path.with_name("other.onnx"), card(0.125))
    if how == "renamed":
        other.replace(slot.path)
    else:
        slot.path.write_bytes(other.read_bytes())
    refresh(slot)
    assert slot.current.tagger.thresholds == [0.125] * 3
    assert (slot.problem, slot.swaps) == (None, [True])
    # Who began with the old one can end with it.
    assert before.tagger.predict(NOISE).shape == (2, 3)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.write_bytes(b"\0" * 50), "not an ONNX file, or a damaged one"),
        (lambda path: path.unlink(), "No such file or directory"),
        (lambda path: make_model(path, outputs=4), "cannot load it|outputs"),
        (lambda path: make_model(path, dark=1000), "not finite for 1 of 1 images"),
    ],
    ids=["no model", "gone", "another width", "smoke test"],
)
def test_a_file_that_is_no_good_is_refused_once_and_said_why(slot, spoil, reason, caplog):
    before = slot.current
    spoil(slot.path)
    refresh(slot)
    refresh(slot)
    assert (slot.current, slot.swaps) == (before, [False])
    assert re.search(reason, slot.problem)
    assert caplog.text.count("a new file was refused") == 1
    slot.path.unlink(missing_ok=True)
    make_model(slot.path, card(0.25))
    refresh(slot)
    assert slot.current.tagger.thresholds == [0.25] * 3
    assert (slot.problem, slot.swaps) == (None, [False, True])


def test_the_first_file_must_be_good(tmp_path):
    with pytest.raises(PlmclError, match=r"model\.onnx: No such file"):
        Slot(tmp_path / "model.onnx", Limits(), providers=None, on_swap=print)


def test_a_lower_limit_of_pixels_than_the_recipes_holds(tmp_path):
    path = make_model(tmp_path / "model.onnx")
    for pixels, expected in ((100, 100), (20_000, 10_000)):
        slot = Slot(path, Limits(pixels=pixels), providers=None, on_swap=print)
        assert slot.current.recipe.max_pixels == expected
