from pathlib import PurePosixPath

import pytest

from plmcl.scoring.patterns import has_magic, matches, split_pattern

PATHS = ["a.jpg", "b.png", "x/a.jpg", "x/y/a.jpg", "x/y/z/b.jpg", "xx/a.JPG", "x/[1].jpg"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.jpg", ["a.jpg"]),
        ("?.*", ["a.jpg", "b.png"]),
        ("*/*.jpg", ["x/a.jpg", "x/[1].jpg"]),
        ("**/*.jpg", ["a.jpg", "x/a.jpg", "x/y/a.jpg", "x/y/z/b.jpg", "x/[1].jpg"]),
        ("**", PATHS),
        ("**/y/**/*.jpg", ["x/y/a.jpg", "x/y/z/b.jpg"]),
        ("x/**/**/[ab].jpg", ["x/a.jpg", "x/y/a.jpg", "x/y/z/b.jpg"]),
        ("x/[[]1].jpg", ["x/[1].jpg"]),
        ("*", ["a.jpg", "b.png"]),
        ("x", []),
    ],
)
def test_what_a_pattern_names(pattern, expected):
    parts = pattern.split("/")
    assert [path for path in PATHS if matches(path.split("/"), parts)] == expected
    if "**" not in pattern:  # pathlib knows the rest
        assert expected == [p for p in PATHS if PurePosixPath(f"/{p}").match(f"/{pattern}")]


def test_many_double_stars_take_no_time():
    assert not matches(["a"] * 60, [*["**", "a"] * 30, "b"])


def test_the_folder_before_the_pattern_is_where_the_search_begins():
    assert split_pattern("a/b/*.jpg") == ("a/b", ["*.jpg"])
    assert split_pattern("*/b") == ("", ["*", "b"])
    assert split_pattern("/*.jpg") == ("/", ["*.jpg"])
    assert [has_magic(path) for path in ("a/b.jpg", "a*", "a?", "[a]")] == [False, True, True, True]
