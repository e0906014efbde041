import numpy as np
import pandas as pd

from plmcl.data.doctor.same import first_with_same_bytes, pairs_that_look_alike

SHA256 = pd.Series(["a", "b", "a", "b", "a"], dtype="str")


def test_the_first_in_the_order_stands_for_all_with_its_bytes():
    assert first_with_same_bytes(SHA256, np.arange(5)).tolist() == [0, 1, 0, 1, 0]
    # 2 comes first; 1 is not compared.
    assert first_with_same_bytes(SHA256, np.array([2, 0, 3, 4])).tolist() == [2, 1, 2, 3, 2]
    assert first_with_same_bytes(SHA256[:0], np.arange(0)).tolist() == []


def test_pairs_are_alike_and_not_of_equal_bytes():
    paths = pd.Series(["p", "q", "r", "s", "t"], index=[9, 8, 7, 6, 5], dtype="str")
    dhash = pd.Series(["0" * 32, "0" * 31 + "7", "0" * 32, "f" * 32, ""], dtype="str")
    pairs = pairs_that_look_alike(paths, SHA256, dhash)
    # p and r are the same bytes; f...f is far from all; t has no hash.
    assert pairs.to_numpy().tolist() == [["p", "q", 3], ["q", "r", 3]]
    assert [str(kind) for kind in pairs.dtypes] == ["str", "str", "int32"]


def test_no_image_makes_no_pair():
    none = pd.Series([], dtype="str")
    pairs = pairs_that_look_alike(none, none, none)
    assert [str(kind) for kind in pairs.dtypes] == ["str", "str", "int32"]
    assert len(pairs) == 0
