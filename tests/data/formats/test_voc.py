import pytest

from plmcl.data.formats import voc
from plmcl.data.formats.base import ImageIndex, Options
from plmcl.errors import PlmclError

FILES = ["a.jpg", "b.jpg", "sub/c.png"]


def xml(filename="", *objects):
    """Objects are names; one that begins with `?` is difficult."""
    parts = [
        f"<object><name>{name.lstrip('?')}</name><pose>Left</pose>"
        f"<difficult>{int(name.startswith('?'))}</difficult>"
        "<part><name>head</name></part></object>"
        for name in objects
    ]
    return f"<annotation><filename>{filename}</filename>{''.join(parts)}</annotation>"


def read(tmp_path, texts, **options):
    folder = tmp_path / "Annotations"
    for name, text in texts.items():
        path = folder / f"{name}.xml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return voc.read(folder, ImageIndex(FILES), Options(**options))


def rows(frame):
    return list(frame.itertuples(index=False, name=None))


def error(tmp_path, text):
    with pytest.raises(PlmclError) as caught:
        read(tmp_path, {"a": text})
    assert str(tmp_path / "Annotations" / "a.xml") in str(caught.value)
    return str(caught.value)


def test_labels_are_the_names_of_objects(tmp_path):
    found = read(
        tmp_path,
        {
            "a": xml("a.jpg", "dog", "cat", "dog"),
            "b": xml(""),  # found by the name of the file; no object in it
            "sub/other": xml("c.png", "NA &amp; é"),
        },
    )
    assert rows(found.labels) == [
        ("a.jpg", "cat", 1), ("a.jpg", "dog", 1), ("sub/c.png", "NA & é", 1),
    ]  # fmt: skip
    assert found.named == {"a.jpg", "b.jpg", "sub/c.png"}
    assert (found.label_names, found.unlisted, found.absent, found.notes) == (None, None, [], {})
    assert sorted(path.name for path in found.files) == ["a.xml", "b.xml", "other.xml"]


def test_difficult_objects_are_no_label_and_are_listed_case_25(tmp_path):
    """Case 25: one image whose only dog is difficult, and one with a plain dog, too."""
    texts = {"a": xml("a.jpg", "?dog", "cat"), "b": xml("b.jpg", "?dog", "dog", "?dog")}
    found = read(tmp_path, texts, difficult="negative")
    assert rows(found.labels) == [("a.jpg", "cat", 1), ("a.jpg", "dog", 0), ("b.jpg", "dog", 1)]
    assert rows(found.difficult) == [("a.jpg", "dog")]
    assert rows(found.unknown) == []
    assert found.notes == {"labels that only difficult objects give (difficult: negative)": 1}
    found = read(tmp_path, texts, difficult="ignore")
    assert rows(found.labels) == [("a.jpg", "cat", 1), ("b.jpg", "dog", 1)]
    assert rows(found.difficult) == rows(found.unknown) == [("a.jpg", "dog")]
    assert found.notes == {"labels that only difficult objects give (difficult: ignore)": 1}


def test_an_object_without_the_element_is_not_difficult(tmp_path):
    text = "<annotation><object><name> cat </name></object></annotation>"
    assert rows(read(tmp_path, {"a": text}).labels) == [("a.jpg", "cat", 1)]


def test_images_that_are_not_there_are_listed(tmp_path):
    found = read(tmp_path, {"x": xml("y.jpg", "cat"), "z": xml("", "cat"), "a": xml("a.jpg")})
    assert found.absent == ["y.jpg", "z.xml"]
    assert found.named == {"a.jpg"}


def test_two_files_about_one_image_are_refused(tmp_path):
    with pytest.raises(PlmclError, match=r"x\.xml: is about 'a.jpg', as .*a\.xml is"):
        read(tmp_path, {"a": xml("a.jpg", "cat"), "x": xml("a.jpg", "dog")})


BOMB = (
    '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    "<annotation><object><name>&b;</name></object></annotation>"
)
OUTSIDE = (
    '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    "<annotation><object><name>&a;</name></object></annotation>"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not XML: no element found"),
        ("<annotation>", "not XML: no element found"),
        ("cat", "not XML: syntax error"),
        ("<annotation>\0</annotation>", "not XML"),
        ("<annotation>&a;</annotation>", "not XML: undefined entity"),
        ('<?xml version="1.0" encoding="x-none"?><annotation/>', "not XML"),
        (b'<?xml version="1.0" encoding="utf-8"?><annotation>\xff</annotation>', "not XML"),
        ("<html/>", "must be a VOC annotation, found the element 'html'"),
        (BOMB, "holds a DOCTYPE"),
        (OUTSIDE, "holds a DOCTYPE"),
        ("<!DOCTYPE annotation SYSTEM 'http://[::1]/x.dtd'><annotation/>", "holds a DOCTYPE"),
        ("<annotation>" + "<a>" * 100_000, "nested too deeply"),
        ("<annotation><object/></annotation>", "object 1, name: a label must not be empty"),
        (xml("a.jpg", "cat", " "), "object 2, name: a label must not be empty"),
        (
            "<annotation><object><name>x</name><difficult>yes</difficult></object></annotation>",
            "object 1, difficult: must be 0 or 1, found 'yes'",
        ),
        (b" " * (1 << 24) + b"<annotation/>", "at most 16777216 are read"),
    ],
)
def test_what_is_no_voc_file_is_refused(tmp_path, text, words):
    assert words in error(tmp_path, text)


def test_a_folder_without_such_a_file_is_refused(tmp_path):
    with pytest.raises(PlmclError, match="no XML file in it"):
        voc.read(tmp_path, ImageIndex(FILES), Options())
    with pytest.raises(PlmclError, match="not a folder"):
        voc.read(tmp_path / "none", ImageIndex(FILES), Options())
