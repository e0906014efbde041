import pytest
from fuzzing import fuzz_images, fuzz_labels

from plmcl.data.formats import format_names

pytestmark = pytest.mark.slow


def test_damaged_images_crash_nothing_and_have_one_status_each():
    found = fuzz_images(500, seed=1)
    assert found["tried"] == 500 == sum(found["statuses"].values())
    assert found["usable"] == sum(found["statuses"].get(name, 0) for name in ("ok", "converted"))
    # Some survive, most do not: else nothing was damaged, or everything beyond recognition.
    assert 25 < found["usable"] < 250
    assert {"truncated", "unreadable", "not_an_image", "too_large"} <= set(found["statuses"])
    assert found["parent_mb"] < 500
    assert found["worker_mb"] < 1000


def test_damaged_label_files_end_in_labels_or_in_one_message():
    found = fuzz_labels(500, seed=1)
    assert found["tried"] == 500
    assert found["usable"] == 500 - sum(found["refused"].values())
    assert set(found["refused"]) == set(format_names())
    assert found["slowest_seconds"] < 10
    assert found["parent_mb"] < 500
