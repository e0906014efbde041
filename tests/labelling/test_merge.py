import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from labelling.exported import annotation, export

from plmcl.data.sources import make_source
from plmcl.errors import PlmclError
from plmcl.labelling.decisions import read_decisions
from plmcl.labelling.label_studio import Question, tasks
from plmcl.labelling.merge import describe, merge, write_merged
from plmcl.labelling.suggest import suggest, write_suggestion

FOLDER = {
    "images": "photos", "labels": "labels.csv", "format": "auto", "unlisted": "unknown",
    "label_names": "label_names.json", "minus_one": "refuse", "crowd": "keep",
    "difficult": "negative", "missing": 0.0,
}  # fmt: skip


def known_before(trained):
    """What training could see, and all of validation and test."""
    held = trained.splits.loc[trained.splits["split"] != "train", "image_id"]
    names = trained.manifest.label_names
    present = {tuple(cell) for cell in trained.manifest.labels[["image_id", "label"]].to_numpy()}
    cells = {(i, name): int((i, name) in present) for i in held for name in names}
    return cells | {
        (row.image_id, row.label): int(row.value) for row in trained.observed.itertuples()
    }


def read_back(trained, folder):
    """labels.csv as the folder source reads it beside the images."""
    photos = folder / "photos"
    photos.mkdir(exist_ok=True)
    for row in trained.manifest.usable.itertuples():
        (photos / row.image_id).write_bytes(b"x")
    found = make_source("folder", {"folder": FOLDER}).annotations(folder)
    cells = {(row.image_id, row.label): int(row.value) for row in found.labels.itertuples()}
    return cells, found


def ask(trained, folder: Path, budget=6):
    write_suggestion(suggest(trained, budget), folder, url=None, not_sure="not sure")
    return json.loads((folder / "tasks.json").read_text())


def test_the_round_trip_loses_nothing(trained, tmp_path):
    """Six images are asked about: four named, one not sure, one without an answer."""
    asked = ask(trained, tmp_path)
    ids = [task["data"]["image_id"] for task in asked]
    names = trained.manifest.label_names
    given = [[annotation(names[n % 4], who=n, number=n)] for n in range(4)]
    given += [[annotation("not sure", who="ann", when="2026-05-05T05:05:05Z", number=5)], []]
    path = export(tmp_path / "export.json", asked, given)
    merged = merge(trained, path, tmp_path / "decisions.csv")
    write_merged(merged, names, tmp_path)
    cells, found = read_back(trained, tmp_path)
    assert cells == known_before(trained) | {(ids[n], names[n % 4]): 1 for n in range(4)}
    assert found.label_names == names
    assert (merged.new, merged.added, merged.changed) == (5, 4, 0)
    # Not sure: no label, and kept with who and when.
    assert not any(image_id in ids[4:] for image_id, _ in cells)
    kept = read_decisions(tmp_path / "decisions.csv").set_index("image_id").loc[ids[4]]
    assert (kept["answer"], kept["who"], kept["when"]) == (
        "not sure", "ann", "2026-05-05T05:05:05Z",
    )  # fmt: skip
    # The next round asks about neither.
    decided = read_decisions(tmp_path / "decisions.csv")["image_id"].tolist()
    assert not set(decided) & set(suggest(trained, 99, answered=decided).images["image_id"])


def test_a_second_import_adds_to_the_first_and_the_same_one_adds_nothing(trained, tmp_path):
    asked = ask(trained, tmp_path)
    label = trained.manifest.label_names[0]
    first = export(tmp_path / "1.json", asked[:1], [[annotation(label)]])
    second = export(tmp_path / "2.json", asked[1:2], [[annotation(label, number=2)]])
    for path, new, all_of_them in ((first, 1, 1), (first, 0, 1), (second, 1, 2)):
        merged = merge(trained, path, tmp_path / "decisions.csv")
        write_merged(merged, trained.manifest.label_names, tmp_path)
        assert (merged.new, len(merged.decisions), merged.added) == (new, all_of_them, all_of_them)


def test_a_check_changes_what_was_known(trained, tmp_path):
    first = trained.observed.iloc[0]
    question = Question(first["image_id"], "x.jpg", "check", first["label"])
    asked = tasks([question], before="", not_sure="not sure", model="m")
    path = export(tmp_path / "e.json", asked, [[annotation("no")]])
    merged = merge(trained, path, tmp_path / "decisions.csv")
    write_merged(merged, trained.manifest.label_names, tmp_path)
    cells, _ = read_back(trained, tmp_path)
    cell = (first["image_id"], first["label"])
    assert cells == known_before(trained) | {cell: 0}
    assert (merged.added, merged.changed) == (0, 1)
    assert describe(merged)[1] == "labels: 0 added, 1 changed"


def test_an_export_of_which_nothing_fits_is_refused_with_the_reason_case_45(trained, tmp_path):
    asked = ask(trained, tmp_path)
    path = export(
        tmp_path / "e.json", asked, [[annotation("aeroplane", number=n)] for n in range(6)]
    )
    with pytest.raises(PlmclError) as caught:
        merge(trained, path, tmp_path / "decisions.csv")
    assert "none of its 6 answers can be used; most often: 'aeroplane' is none of" in str(
        caught.value
    )
    assert "is 'airplane' meant?" in str(caught.value)


def test_a_label_that_nobody_has_seen_yet_stays_in_the_list_case_48(trained, tmp_path):
    """The list grew by a label: old answers are taken by name, and the new label is not lost."""
    names = ["new one", *trained.manifest.label_names]
    grown = replace(trained, manifest=replace(trained.manifest, label_names=names))
    asked = ask(trained, tmp_path)
    path = export(tmp_path / "e.json", asked[:1], [[annotation(names[2])]])
    # All of validation and test are known: there the new label is absent; make them unknown.
    unknown = replace(grown.manifest, unlisted="unknown")
    merged = merge(replace(grown, manifest=unknown), path, tmp_path / "decisions.csv")
    write_merged(merged, names, tmp_path)
    cells, found = read_back(trained, tmp_path)
    assert found.label_names == names
    assert cells[asked[0]["data"]["image_id"], names[2]] == 1
    assert not any(label == "new one" for _, label in cells)


def test_the_splits_that_a_source_gave_stay(trained, tmp_path):
    images = trained.manifest.images.assign(split="train")
    given = replace(trained, manifest=replace(trained.manifest, images=images))
    asked = ask(trained, tmp_path)
    path = export(tmp_path / "e.json", asked[:1], [[annotation(trained.manifest.label_names[0])]])
    merged = merge(given, path, tmp_path / "decisions.csv")
    assert set(merged.labels["split"]) == {"train"}
    assert pd.api.types.is_string_dtype(merged.labels["value"])
