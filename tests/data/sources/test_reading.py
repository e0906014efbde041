import numpy as np
import pytest

from plmcl.data.sources.reading import read_lines, read_numbers, read_pairs, to_presence
from plmcl.errors import PlmclError


def test_lines_come_with_their_numbers_and_without_blanks(tmp_path):
    path = tmp_path / "list.txt"
    path.write_bytes("a\\b.jpg\r\n\r\n  é f.jpg \n".encode())
    assert list(read_lines(path)) == [
        (f"{path}, line 1", "a\\b.jpg"),
        (f"{path}, line 3", "é f.jpg"),
    ]


def test_pairs_have_two_columns_with_any_blanks_between(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("2007_000027  1\n2007_000032 -1\n")
    assert [pair for _, *pair in read_pairs(path)] == [["2007_000027", "1"], ["2007_000032", "-1"]]
    path.write_text("a 1\nb\n")
    with pytest.raises(PlmclError, match=r"list\.txt, line 2: expected two columns, found 'b'"):
        list(read_pairs(path))


def test_numbers_may_have_more_columns_behind_them(tmp_path):
    path = tmp_path / "table.txt"
    path.write_text("1 2 0 3 27.7\n4 5 1 0 1 2 3\n")
    assert read_numbers(path, (0, 1, 2)).tolist() == [[1, 2, 0], [4, 5, 1]]
    path.write_text("7\n")
    assert read_numbers(path, (0,)).shape == (1, 1)


@pytest.mark.parametrize(
    "content", [b"1 2.5\n", b"1 x\n", b"1\n", b"1 99999999999\n", b"\xff\xfe 1\n", b"#1 2\n"]
)
def test_what_is_no_whole_number_is_refused(tmp_path, content):
    path = tmp_path / "table.txt"
    path.write_bytes(content)
    with pytest.raises(PlmclError, match=r"table\.txt: expected whole numbers"):
        read_numbers(path, (0, 1))


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_a_table_without_a_line_is_refused(tmp_path, content):
    path = tmp_path / "table.txt"
    path.write_bytes(content)
    with pytest.raises(PlmclError, match=r"table\.txt: empty"):
        read_numbers(path, (0,))


def test_presence_is_0_or_1_and_minus_1_is_not_guessed_case_46():
    assert to_presence(np.array([[1.0, 0.0]]), "x").tolist() == [[True, False]]
    with pytest.raises(PlmclError, match=r"x\.txt: expected only 0 and 1, found -1"):
        to_presence(np.array([0, 1, -1]), "x.txt")
