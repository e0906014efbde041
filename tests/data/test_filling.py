import os
import subprocess
import sys

import pytest

from plmcl.data.filling import copy_file, filling
from plmcl.errors import PlmclError


def test_filling_is_all_or_nothing(tmp_path):
    raw = tmp_path / "deep" / "raw"

    def fill(name, *, fail):
        with filling(raw) as partial:
            (partial / name).write_text("x")
            if fail:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        fill("a", fail=True)
    assert list(raw.parent.iterdir()) == []
    (raw.parent / "raw.partial").mkdir()
    (raw.parent / "raw.partial" / "c").write_text("of a call that was killed")
    fill("b", fail=False)
    assert [path.name for path in raw.iterdir()] == ["b"]
    assert [path.name for path in raw.parent.iterdir()] == ["raw"]


def test_filling_refuses_to_mix_two_snapshots(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    with filling(raw) as partial:  # empty is fine
        (partial / "a").write_text("x")
    with pytest.raises(PlmclError, match="is not empty"), filling(raw):
        pass
    assert (raw / "a").exists()


def test_a_copy_has_the_time_and_is_another_file(tmp_path):
    source, target = tmp_path / "a.jpg", tmp_path / "deep" / "a.jpg"
    source.write_bytes(b"x")
    os.utime(source, (5, 5))
    copy_file(source, target)
    assert (target.read_bytes(), target.stat().st_mtime) == (b"x", 5)
    assert not target.samefile(source)


def test_a_file_that_has_vanished_is_named(tmp_path):
    with pytest.raises(PlmclError, match=r"gone\.jpg: cannot be copied to .*: No such file"):
        copy_file(tmp_path / "gone.jpg", tmp_path / "raw" / "gone.jpg")


def test_it_is_quickly_imported():
    code = "import sys, plmcl.data.filling; print({'pandas', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
