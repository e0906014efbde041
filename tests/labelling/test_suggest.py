import json

import pytest

from plmcl.errors import PlmclError
from plmcl.labelling.suggest import describe, suggest, write_suggestion


def test_unlabeled_training_images_are_suggested_and_no_others(trained):
    found = suggest(trained, 10)
    chosen = set(found.images["image_id"])
    splits = trained.splits.set_index("image_id")["split"]
    assert len(chosen) == 10
    assert set(splits[list(chosen)]) == {"train"}
    assert not chosen & set(trained.observed["image_id"])
    assert found.images["rank"].tolist() == list(range(1, 11))


def test_a_larger_budget_begins_with_the_smaller_one_and_asks_nobody_twice(trained):
    few, more = suggest(trained, 3).images["image_id"], suggest(trained, 6).images["image_id"]
    assert more.tolist()[:3] == few.tolist()
    again = suggest(trained, 3, answered=few.tolist())
    assert not set(again.images["image_id"]) & set(few)
    assert again.passed_over == 3


def test_nobody_is_left_to_ask(trained):
    everything = suggest(trained, 10_000)
    assert len(everything.images) == everything.total - everything.labeled
    with pytest.raises(PlmclError, match="all 36 training images are labeled or were asked about"):
        suggest(trained, 1, answered=everything.images["image_id"].tolist())


def test_a_share_is_one_of_images_and_is_called_so_case_44(trained):
    found = suggest(trained, 5)
    labeled = trained.observed["image_id"].nunique()
    assert (found.labeled, found.total) == (labeled, 36)
    first, second = describe(found)
    assert first == (
        f"labeled: {labeled} of 36 training images ({100 * labeled / 36:.1f} % of the images, not "
        "of the entries)"
    )
    assert f"5 more, to {100 * (labeled + 5) / 36:.1f} %" in second


def test_what_is_written_names_the_labels_of_the_one_list(trained, tmp_path):
    found = suggest(trained, 4)
    write_suggestion(found, tmp_path, url=None, not_sure="cannot tell")
    config = (tmp_path / "config.xml").read_text()
    names = [line.split('"')[1] for line in config.splitlines() if "<Choice " in line]
    assert names == [*trained.manifest.label_names, "cannot tell"]
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert [task["data"]["image_id"] for task in tasks] == found.images["image_id"].tolist()
    assert all(task["predictions"] == [] for task in tasks)  # nobody is led
    record = json.loads((tmp_path / "suggest.json").read_text())
    assert (record["run"], record["suggested"]) == ("sspl-40-ridge", 4)


def test_words_for_not_sure_that_are_a_label_are_refused(trained, tmp_path):
    label = trained.manifest.label_names[0].upper()
    with pytest.raises(PlmclError, match="--not-sure"):
        write_suggestion(suggest(trained, 1), tmp_path / "out", url=None, not_sure=label)
    assert not (tmp_path / "out").exists()
