import math
import re
from xml.etree import ElementTree

import pytest
from grid.small import grid, runs

from plmcl.grid.cost import draw_cost
from plmcl.grid.entries import make_entries
from plmcl.labels.effort import SECONDS_A_LABEL, hours


def test_a_label_takes_28_8_seconds_and_the_papers_394_hours_come_out():
    assert pytest.approx(28.8) == SECONDS_A_LABEL
    assert round(hours("sspl-60", num_train=82_081, num_labels=80)) == 394


@pytest.mark.parametrize(
    ("setting", "labels"),
    [
        ("sspl-20", 2),
        ("fspl", 10),
        ("ffl", 40),  # each label of each image is looked at
        ("sfl-20", 8),
        ("fpl-50", 20),
    ],
)
def test_hours_of_ten_images_with_four_labels(setting, labels):
    assert hours(setting, num_train=10, num_labels=4) == pytest.approx(labels * 28.8 / 3600)


def test_labels_as_given_have_no_price():
    assert math.isnan(hours("given", num_train=10, num_labels=4))


HOSTILE = "<b>a</b> & $x_1$ \x07"
SPEC = grid({"BCE": {"setting": "ffl", "reference": True}, HOSTILE: {}, "not yet": {}})
SETTINGS = ("sspl-20", "fspl", "ffl")
RUNS = runs(
    ("BCE", "ffl", "", (0.9, 0.9), (0.95, 0.95)),
    (HOSTILE, "sspl-20", "", (0.9, 0.9), (0.7, 0.7)),
    (HOSTILE, "fspl", "", (0.9, 0.9), (0.8, 0.8)),
)


def drawn():
    prices = {setting: hours(setting, num_train=1000, num_labels=20) for setting in SETTINGS}
    return draw_cost(SPEC, make_entries(SPEC, RUNS), prices)


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.text]


def heights(svg, colour):
    """Of the points of the curve of a colour; SVG counts from the top."""
    (path,) = re.findall(rf'<path d="([^"]+)" clip-path[^>]*stroke: {colour}', svg)
    return [float(y) for y in re.findall(r"[ML] \S+ (\S+)", path)]


def test_full_labels_are_a_level_with_their_price():
    """1,000 images x 20 labels x 28.8 s = 160 hours."""
    left, right = heights(drawn(), "#0072b2")
    assert left == right
    assert "BCE: 160 h" in texts(drawn())


def test_a_row_is_a_curve_over_its_settings():
    """95 %, 70 % and 80 %: the level is 25 points above the first, the curve rises by 10."""
    level, (first, last) = heights(drawn(), "#0072b2")[0], heights(drawn(), "#d55e00")
    assert (first - level) / (first - last) == pytest.approx(2.5, abs=1e-4)


def test_any_name_is_text_and_a_row_without_results_is_named():
    assert "<b>a</b> & $x_1$ \ufffd" in texts(drawn())
    assert "not yet" in texts(drawn())


def test_a_setting_without_a_price_is_not_shown():
    spec = grid({"AN": {}}, settings=["given", "fspl"])
    lines = [("AN", "given", "", (0.9,), (0.1,)), ("AN", "fspl", "", (0.9,), (0.8,))]
    svg = draw_cost(spec, make_entries(spec, runs(*lines)), {"given": math.nan, "fspl": 8.0})
    assert len(heights(svg, "#0072b2")) == 1
    assert "nan" not in svg


def test_the_same_results_give_the_same_bytes():
    assert drawn() == drawn()
