import math

import pytest

from plmcl.errors import PlmclError
from plmcl.grid.published import Published, read_published
from plmcl.params import parse_section

PERCENTS = ("sspl-20", "sspl-40", "sspl-60", "sspl-80", "fspl")


def leaves(tables):
    for value in tables.values():
        yield from leaves(value) if isinstance(value, dict) else [value]


def test_every_figure_of_the_tables_is_there():
    """Table 1: 6 x 8 on 3 data sets; 2: 8 x 6; 3: 6 x 10; 4: 4 x 2; 5: 3 x 4."""
    tables = read_published().tables
    counts = {name: len(list(leaves(table))) for name, table in tables.items()}
    assert counts == {
        "resnet50": 144 + 48,
        "resnet101": 60,
        "ablation": 8,
        "hyper_parameters": 12,
    }


@pytest.mark.parametrize(
    ("table", "dataset", "printed"),
    [
        ("resnet50/end_to_end", "coco", [61.0, 65.1, 68.4, 70.4, 71.1]),
        ("resnet50/end_to_end", "voc", [79.9, 84.6, 87.6, 88.4, 89.0]),
        ("resnet50/end_to_end", "nuswide", [37.9, 42.5, 44.8, 46.6, 48.6]),
        ("resnet50/linear_init", "coco", [64.8, 67.8, 69.2, 71.5, 72.0]),
        ("resnet50/linear_init", "voc", [83.1, 85.4, 87.8, 87.7, 88.7]),
        ("resnet50/linear_init", "nuswide", [46.2, 49.4, 50.3, 50.7, 51.5]),
        ("resnet101/end_to_end", "coco", [61.4, 67.3, 69.5, 71.5, 72.2]),
        ("resnet101/end_to_end", "voc", [82.0, 86.2, 88.4, 88.8, 89.7]),
    ],
)
def test_plmcl_as_printed(table, dataset, printed):
    figures = read_published().figures(table, dataset)
    assert [figures["PLMCL", setting] for setting in PERCENTS] == printed


def test_sums_over_the_rows_of_a_column_as_added_from_the_printed_page():
    """A slip in one figure shows in its column's sum."""
    sums = {
        ("resnet50/end_to_end", "coco", "sspl-20"): 46.3 + 48.9 + 57.0 + 52.7 + 47.3 + 61.0,
        ("resnet50/linear_init", "voc", "sspl-20"): 78.6 + 71.5 + 79.4 + 82.6 + 73.9 + 83.1,
        ("resnet50/linear_init", "nuswide", "sspl-80"): 46.5 + 48.0 + 46.2 + 48.2 + 47.5 + 50.7,
        ("resnet50/end_to_end", "nuswide", "fspl"): 42 + 44.9 + 46.3 + 46.0 + 43.1 + 48.6,
        ("resnet101/end_to_end", "voc", "fspl"): 86.1 + 88.3 + 87.2 + 86.7 + 88.8 + 89.7,
        ("ablation/linear_init", "coco", "fspl"): 67.3 + 69.9 + 70.4 + 72.0,
    }
    for (table, dataset, column), expected in sums.items():
        figures = read_published().figures(table, dataset)
        found = sum(value for (_, setting), value in figures.items() if setting == column)
        assert math.isclose(found, expected)


def test_full_labels_are_references_of_the_same_table():
    figures = read_published().figures("resnet50/linear_init", "nuswide")
    assert (figures["BCE", "ffl"], figures["BCE-LS", "ffl"]) == (54.7, 54.2)


def test_a_data_set_that_a_table_does_not_have_has_no_figures():
    assert read_published().figures("resnet101/end_to_end", "nuswide") == {}
    assert read_published().figures("resnet50/end_to_end", "folder") == {}


@pytest.mark.parametrize("name", ["resnet50", "sspl/end_to_end", "resnet101/linear_init", ""])
def test_a_table_that_the_paper_does_not_have_is_refused(name):
    with pytest.raises(PlmclError) as refusal:
        read_published().figures(name, "voc")
    assert str(refusal.value) == (
        "published: expected one of resnet50/end_to_end, resnet50/linear_init, "
        "resnet101/end_to_end, ablation/linear_init, hyper_parameters/end_to_end, "
        f"found {name!r}"
    )


def test_the_reader_is_strict():
    values = {"source": "x", "tables": {"a": {"cub": {"linear": {"AN": {"sspl-0": 640}}}}}}
    with pytest.raises(PlmclError, match=r"published\.yaml\.tables\.a\.cub"):
        parse_section(Published, values, "published.yaml")
