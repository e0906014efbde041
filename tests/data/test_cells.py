"""Tests of Cells: against a plain dict, and on hand-made cells."""

from hypothesis import given
from hypothesis import strategies as st

from plmcl.data.cells import Cells

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)


def rows(cells):
    return list(cells.table().itertuples(index=False, name=None))


@given(st.lists(st.tuples(texts, texts, st.integers(0, 1))))
def test_the_table_is_a_sorted_dict_in_which_present_wins(said):
    cells, expected, both = Cells(), {}, set()
    for image_id, label, value in said:
        cells.add(image_id, label, value)
        if expected.get((image_id, label), value) != value:
            both.add((image_id, label))
        expected[image_id, label] = max(value, expected.get((image_id, label), 0))
    assert rows(cells) == [(*cell, expected[cell]) for cell in sorted(expected)]
    assert cells.conflicts == len(both)
    assert cells.label_names == sorted({label for _, label, _ in said})
    assert cells.named == {image_id for image_id, _, _ in said}


def test_an_image_can_be_named_without_a_label():
    cells = Cells()
    cells.name("seen.jpg")
    cells.add("a.jpg", "cat", 0)
    assert cells.named == {"seen.jpg", "a.jpg"}
    assert rows(cells) == [("a.jpg", "cat", 0)]


def test_the_columns_have_the_contracts_types_also_when_empty():
    cells = Cells()
    assert [str(dtype) for dtype in cells.table().dtypes] == ["str", "str", "int8"]
    cells.add("é.jpg", "NA", 1)
    assert [str(dtype) for dtype in cells.table().dtypes] == ["str", "str", "int8"]
    assert rows(cells) == [("é.jpg", "NA", 1)]
