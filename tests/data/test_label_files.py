import json
import os
import time

import pytest

from plmcl.data.label_files import files_below, read_json, read_name_list, read_text
from plmcl.errors import PlmclError


def error(function, path, **options):
    with pytest.raises(PlmclError) as caught:
        function(path, **options)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_byte_order_mark_is_no_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfcaf\xc3\xa9")
    assert read_text(path) == "café"


def test_what_is_no_file_or_too_large_is_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"12345")
    assert read_text(path, max_bytes=5) == "12345"
    assert "5 bytes; at most 4 are read" in error(read_text, path, max_bytes=4)
    assert "No such file" in error(read_text, tmp_path / "b.txt")
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in error(read_text, tmp_path / "pipe")
    assert "not a regular file" in error(read_text, tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' stands twice in an object"),
        ("[NaN]", "NaN is no number there"),
        ("[-Infinity]", "-Infinity is no number there"),
        ("9" * 5000, "not JSON: Exceeds the limit"),
        ("[1, 2", "line 1 column 6"),
        ("", "not JSON"),
        ("\0", "not JSON"),
    ],
)
def test_what_is_no_sound_json_is_refused(tmp_path, text, words):
    path = tmp_path / "a.json"
    path.write_text(text)
    assert words in error(read_json, path)


def test_json_in_another_encoding_is_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('["é"]', encoding="cp1252")
    assert "not UTF-8 (it holds the byte 0xe9)" in error(read_json, path)


def test_only_keys_that_are_asked_for_are_kept(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": [{"b": 1, "c": [2]}], "c": {"a": 3}, "c": 4}')
    assert read_json(path, keep=frozenset("ab")) == {"a": [{"b": 1}]}


NAMES = ["a,b", "it's", 'quo"te', '""\\"x', "no", "NA", "007", "1e3", "[x]", "é", "😀"]


@pytest.mark.parametrize("suffix", ["txt", "json", "JSON"])
def test_a_list_of_names_survives_a_round_trip_case_42(tmp_path, suffix):
    """Case 42: quotes and commas in names."""
    path = tmp_path / f"names.{suffix}"
    text = "\n".join(NAMES) + "\n" if suffix == "txt" else json.dumps(NAMES)
    path.write_text(text, encoding="utf-8")
    assert read_name_list(path) == NAMES


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.txt", "", "name 1: a label must not be empty"),
        ("a.txt", "cat\n\ndog\n", "name 2: a label must not be empty"),
        ("a.txt", "cat\ndog\ncat \n", "name 3: 'cat' stands there twice"),
        ("a.txt", "cat\ndo\0g\n", "name 2: 'do\\x00g' holds what is no character"),
        ("a.json", "[]", "no names in it"),
        ("a.json", '{"cat": 0}', "must be a list, found an object"),
        ("a.json", '["cat", 7]', "name 2: must be a text, found 7"),
        ("a.json", '["cat", null]', "name 2: must be a text, found null"),
        ("a.json", '["\\ud800"]', "name 1: '\\ud800' holds what is no character"),
    ],
)
def test_a_list_of_names_that_is_not_sound_is_refused(tmp_path, name, text, words):
    path = tmp_path / name
    path.write_text(text)
    assert words in error(read_name_list, path)


def test_files_are_found_without_what_systems_leave_behind(tmp_path):
    for name in ("b.xml", "a/c.XML", "a/._c.xml", ".d/e.xml", "__MACOSX/f.xml", "g.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert list(files_below(tmp_path, ".xml")) == ["b.xml", "a/c.XML"]


def test_a_link_is_followed_inside_only(tmp_path):
    folder = tmp_path / "labels"
    folder.mkdir()
    (folder / "a.xml").touch()
    (folder / "b.xml").symlink_to("a.xml")
    assert list(files_below(folder, ".xml")) == ["a.xml", "b.xml"]
    (tmp_path / "secret.xml").touch()
    (folder / "c.xml").symlink_to("../secret.xml")
    with pytest.raises(PlmclError, match=r"c\.xml: a link that leads out of"):
        list(files_below(folder, ".xml"))
    (folder / "c.xml").unlink()
    (folder / "d").symlink_to(tmp_path)  # a folder is not entered
    assert list(files_below(folder, ".xml")) == ["a.xml", "b.xml"]


def test_very_many_keys_of_which_one_stands_twice_are_refused_at_once(tmp_path):
    keys = ",".join(f'"{i}":0' for i in range(200_000))
    path = tmp_path / "labels.json"
    path.write_text("{" + keys + ',"199999":1}')
    start = time.monotonic()
    with pytest.raises(PlmclError, match="the key '199999' stands twice"):
        read_json(path)
    assert time.monotonic() - start < 5  # every key against every other would take an hour
