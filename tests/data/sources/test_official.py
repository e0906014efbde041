import official_sets as sets
import pytest

from plmcl.data.sources import make_source, official
from plmcl.data.sources.official import folders
from plmcl.errors import PlmclError


def voc2007():
    section = {"year": 2007, "difficult": "negative", "missing": 0.0, "mirrors": []}
    return make_source("voc", {"voc": section})


def write_archives(root, path, test_images):
    for name, splits in (
        ("VOCtrainval_06-Nov-2007", {"trainval": {"000005": {"chair": 1}}}),
        ("VOCtest_06-Nov-2007", {"test": {image: {"dog": 1} for image in test_images}}),
    ):
        sets.write_voc(root / name / "VOCdevkit" / "VOC2007", splits)
        sets.tar(root / name, path / f"{name}.tar")


def test_several_archives_fill_one_folder(tmp_path):
    write_archives(tmp_path / "made", tmp_path / "in", ["000001", "000002"])
    calls = []
    raw = tmp_path / "raw"
    voc2007().download(tmp_path / "in", raw, seed=0, progress=lambda *call: calls.append(call))
    found = voc2007().annotations(raw)
    assert sets.in_order(found, "train") == ["000005.jpg"]
    assert sets.in_order(found, "test") == ["000001.jpg", "000002.jpg"]
    assert [path.name for path in raw.iterdir()] == ["VOCdevkit"]
    assert calls[-1][0] == calls[-1][1] == (tmp_path / "in/VOCtest_06-Nov-2007.tar").stat().st_size


def test_a_file_that_two_archives_hold_is_refused(tmp_path):
    write_archives(tmp_path / "made", tmp_path / "in", ["000005"])
    with pytest.raises(PlmclError, match=r"VOCtest.*000005\.jpg is in another archive, too"):
        voc2007().download(tmp_path / "in", tmp_path / "raw", seed=0)
    assert not (tmp_path / "raw").exists()


def test_an_interrupted_call_leaves_nothing_that_the_next_one_minds(tmp_path):
    write_archives(tmp_path / "made", tmp_path / "in", ["000001"])
    sets.write_files(tmp_path / "raw.partial" / ".unpacked", {"VOCdevkit/old.jpg": b""})
    voc2007().download(tmp_path / "in", tmp_path / "raw", seed=0)
    assert not any("old" in name or ".unpacked" in name for name in sets.below(tmp_path / "raw"))


def test_a_snapshot_is_not_mixed_with_an_older_one(tmp_path):
    write_archives(tmp_path / "made", tmp_path / "in", ["000001"])
    sets.write_files(tmp_path / "raw", {"old.txt": ""})
    with pytest.raises(PlmclError, match="is not empty"):
        voc2007().download(tmp_path / "in", tmp_path / "raw", seed=0)


def test_folders_come_the_nearest_first_and_not_too_deep(tmp_path):
    (tmp_path / "b" / "x" / "deep").mkdir(parents=True)
    (tmp_path / "a" / ".hidden").mkdir(parents=True)
    (tmp_path / "a" / "y").mkdir()
    found = [path.relative_to(tmp_path).as_posix() for path in folders(tmp_path)]
    assert found == [".", "a", "b", "a/y", "b/x"]
    assert list(folders(tmp_path / "none")) == []


def test_a_path_that_is_not_there_fetches_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(official, "fetch", lambda *_, **__: pytest.fail("fetched"))
    (tmp_path / "file").write_text("")
    for name in ("mistyped", "file"):
        with pytest.raises(
            PlmclError, match=rf"{name}: not found, or not a folder; let data\.path"
        ):
            voc2007().download(tmp_path / name, tmp_path / "raw", seed=0)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
