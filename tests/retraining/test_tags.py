import pandas as pd
import pytest

from plmcl.errors import PlmclError
from plmcl.retraining.tags import tags_of_file, tags_of_folders


def test_labels_are_text_whatever_they_look_like_case_21(tmp_path):
    names = ["None", "NA", "007", "1e3", "no", "a,b", 'say "x"']
    rows = [f'{i}.jpg,"{name.replace(chr(34), chr(34) * 2)}"\n' for i, name in enumerate(names)]
    (tmp_path / "labels.csv").write_text("file,label\n" + "".join(rows))
    tags, sha256 = tags_of_file(tmp_path, names, "there")
    assert dict(tags) == {f"{i}.jpg": name for i, name in enumerate(names)}
    assert len(sha256) == 64


def test_rows_that_say_nothing_or_the_same_again_are_no_matter(tmp_path):
    (tmp_path / "labels.csv").write_text("label,file\ncat,a.jpg\ncat,a.jpg\n,b.jpg\n")
    assert dict(tags_of_file(tmp_path, ["cat"], "there")[0]) == {"a.jpg": "cat"}


def test_a_file_that_is_not_utf8_is_named_by_its_place(tmp_path):
    (tmp_path / "labels.csv").write_bytes(b"file,label\na.jpg,caf\xe9\n")
    with pytest.raises(PlmclError, match=r"s3://b/labels\.csv: must be a CSV file .UTF-8."):
        tags_of_file(tmp_path, ["cat"], "s3://b")


def test_a_link_out_of_the_place_is_no_tag_file(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_text("file,label\na.jpg,cat\n")
    (tmp_path / "in/labels.csv").symlink_to(tmp_path / "secret")
    with pytest.raises(PlmclError, match="a link that leads out of"):
        tags_of_file(tmp_path / "in", ["cat"], "in")


def test_before_there_are_labels_no_tag_is_known(tmp_path):
    (tmp_path / "labels.csv").write_text("file,label\na.jpg,cat\n")
    with pytest.raises(PlmclError, match="0 labels that are known: none, run the ingest stage"):
        tags_of_file(tmp_path, [], "there")


def test_the_innermost_folder_that_is_called_like_a_label_counts():
    names = pd.Series(["cat/x/a.jpg", "cat/dog/b.jpg", "cats/c.jpg", "d.jpg", "Cat/e.jpg"])
    assert list(tags_of_folders(names, ["cat", "dog"])) == ["cat", "dog", "", "", ""]
