import dataclasses
import json
import re

import numpy as np
import pytest

from plmcl.card import FORMAT, Card
from plmcl.data.images import Recipe
from plmcl.errors import PlmclError

NAMES = ["NA", "None", "no", "007", "1e3", "a,b", 'say "x"', "new\nline", "a;b", "🙂", " ", "é"]


def make_card(**changes):
    thresholds = np.linspace(0, 1, len(NAMES), dtype=np.float32)
    thresholds[1] = np.float32(0.1)
    card = Card(
        label_names=NAMES,
        thresholds=thresholds,
        threshold_rules=["best F1 on known cells"] * len(NAMES),
        recipe=Recipe(size=96, background=(255, 254, 0), max_pixels=50_000_000),
        setting="sspl-40",
        method="plmcl",
        data_sha256="d" * 64,
        splits_sha256="5" * 64,
        code_commit="c" * 40,
        run_id="r1",
        parity={"opset": 18, "max_difference": {"1": 1.5e-7}},
        calibration_rules=[f"Platt scaling on {n} known positives" for n in range(len(NAMES))],
        precision="int8",
    )
    return dataclasses.replace(card, **changes)


def test_metadata_gives_back_every_field_to_the_last_bit():
    card = make_card()
    metadata = card.to_metadata()
    again = Card.from_metadata(metadata | {"author": "someone else's key, not JSON"})
    assert again.label_names == NAMES
    assert again.thresholds.dtype == np.float32
    assert again.thresholds.tobytes() == card.thresholds.tobytes()
    assert again.recipe == card.recipe
    assert again.to_metadata() == metadata


def test_every_value_is_json_under_our_own_prefix():
    metadata = make_card().to_metadata()
    assert {key.split(".")[0] for key in metadata} == {"plmcl"}
    values = {key: json.loads(text) for key, text in metadata.items()}
    assert values["plmcl.format"] == FORMAT == 2
    assert values["plmcl.label_names"] == NAMES
    assert values["plmcl.recipe"] == {
        "size": 96,
        "background": [255, 254, 0],
        "max_pixels": 50_000_000,
        "version": 1,
    }


def test_metadata_of_another_tool_is_not_ours():
    with pytest.raises(PlmclError, match=r"not a model that plmcl exported.*no plmcl\.format"):
        Card.from_metadata({"producer": "ultralytics", "names": "{0: 'cat'}"})


def test_newer_format_is_named_before_anything_else_is_read():
    with pytest.raises(PlmclError, match=r"the file has 3, this plmcl reads up to 2; upgrade"):
        Card.from_metadata({"plmcl.format": "3", "plmcl.brand_new": "not even JSON"})


@pytest.mark.parametrize("text", ["0", "true", '"1"', "1.0", "null", "[1]", "x", "", "-1"])
def test_a_broken_format_is_refused(text):
    with pytest.raises(PlmclError, match=r"plmcl\.format: (expected a number|not JSON)"):
        Card.from_metadata(make_card().to_metadata() | {"plmcl.format": text})


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Card)])
def test_each_missing_key_is_named(name):
    metadata = make_card().to_metadata()
    del metadata[f"plmcl.{name}"]
    with pytest.raises(PlmclError, match=rf"^plmcl\.{name}: missing$"):
        Card.from_metadata(metadata)


def test_a_file_of_format_1_is_read_as_fp32_without_calibration():
    metadata = make_card().to_metadata() | {"plmcl.format": "1"}
    with pytest.raises(PlmclError, match=r"^plmcl\.calibration_rules: not a key of format 1$"):
        Card.from_metadata(metadata)
    del metadata["plmcl.calibration_rules"], metadata["plmcl.precision"]
    card = Card.from_metadata(metadata)
    assert (list(card.calibration_rules), card.precision) == ([], "fp32")
    assert card.label_names == NAMES


def test_an_unknown_key_of_ours_is_refused():
    with pytest.raises(PlmclError, match=r"^plmcl\.treshold: not a key of format 2$"):
        Card.from_metadata(make_card().to_metadata() | {"plmcl.treshold": "0.5"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("label_names", '{"a": 1}'),
        ("label_names", '["a", 1]'),
        ("label_names", "null"),
        ("thresholds", "[0, 1]"),
        ("thresholds", '["0.5"]'),
        ("threshold_rules", "[null]"),
        ("calibration_rules", "[1]"),
        ("precision", "16"),
        ("recipe", "[96]"),
        ("setting", "1"),
        ("code_commit", "null"),
        ("parity", "[]"),
        ("method", "plmcl"),
        ("parity", "[" * 100_000),
        ("thresholds", "[" + "9" * 5000 + "]"),
    ],
)
def test_a_value_of_the_wrong_type_is_one_line_that_names_its_key(name, text):
    with pytest.raises(PlmclError) as error:
        Card.from_metadata(make_card().to_metadata() | {f"plmcl.{name}": text})
    assert re.match(rf"plmcl\.{name}: (expected|not JSON)", str(error.value))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e39", "1e999"])
def test_a_threshold_that_is_no_finite_float32_is_refused(value):
    texts = json.dumps([0.5] * len(NAMES)).replace("0.5", value, 1)
    with pytest.raises(PlmclError, match="thresholds: expected finite float32"):
        Card.from_metadata(make_card().to_metadata() | {"plmcl.thresholds": texts})


def test_names_thresholds_and_rules_must_belong_together():
    with pytest.raises(PlmclError, match="each of 12 labels, found 11 thresholds and 12 rules"):
        make_card(thresholds=np.zeros(11, np.float32))
    with pytest.raises(PlmclError, match="each of 12 labels, found 12 thresholds and 1 rules"):
        make_card(threshold_rules=["k"])
    with pytest.raises(PlmclError, match="calibration_rules: expected none, or one for each of 12"):
        make_card(calibration_rules=["k"])
    with pytest.raises(PlmclError, match="all different"):
        make_card(label_names=["NA", "NA", *NAMES[2:]])
    with pytest.raises(PlmclError, match="one or more names"):
        make_card(label_names=[], thresholds=np.zeros(0, np.float32), threshold_rules=[])
    with pytest.raises(PlmclError, match="float32"):
        make_card(thresholds=np.zeros(len(NAMES)))


def test_case_99_recipe_of_another_version_is_refused():
    recipe = make_card().recipe.to_dict() | {"version": 2}
    with pytest.raises(PlmclError, match="version 2"):
        Card.from_metadata(make_card().to_metadata() | {"plmcl.recipe": json.dumps(recipe)})
