import pytest

from plmcl.data.sources import make_source, source_names
from plmcl.errors import PlmclError


def test_the_sources_are_the_files_of_the_package():
    assert {"folder", "scenes"} <= set(source_names())
    assert "base" not in source_names()


def test_a_source_is_made_from_its_section():
    section = {"images": 9, "labels": 5, "size": 64, "labels_per_image": 1.5, "clutter": 0}
    assert make_source("scenes", {"scenes": section}).labels == 5


@pytest.mark.parametrize(
    ("name", "sections", "words"),
    [
        ("voc1", {}, "sources.voc1: unknown source; known: "),
        ("base", {}, "sources.base: unknown source"),
        ("folder", {}, "sources.folder: missing from params.yaml"),
        ("folder", {"folder": {"images": ".", "labels": None}}, "unlisted: missing"),
        (
            "folder",
            {"folder": {"images": ".", "label": None, "labels": None, "unlisted": "negative"}},
            "label: unknown key; did you mean 'labels'?",
        ),
    ],
)
def test_a_wrong_source_or_section_is_refused(name, sections, words):
    with pytest.raises(PlmclError) as caught:
        make_source(name, sections)
    assert words in str(caught.value)
