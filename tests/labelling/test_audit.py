import csv
import json
import re
from dataclasses import replace

import pandas as pd
import pytest

from plmcl.data.rows import truth_rows
from plmcl.labelling.audit import audit, describe, write_audit
from plmcl.labelling.audit_page import write_audit_page


@pytest.fixture(scope="module")
def result(trained):
    return audit(trained)


def test_every_split_is_audited_and_the_truth_of_what_was_hidden_is_told(trained, result):
    found = result.found
    assert set(found["split"]) == {"train", "val", "test"}
    train = truth_rows(trained.manifest, trained.splits, "train")
    shown = {
        (image_id, name)
        for image_id, row in zip(train.image_ids, train.targets, strict=True)
        for name, value in zip(trained.manifest.label_names, row, strict=True)
        if value
    }
    hidden = found[(found["split"] == "train") & (found["known"] == "unknown")]
    assert len(hidden) > 50
    for row in hidden.to_dict("records"):
        assert row["truth"] == ("yes" if (row["image_id"], row["label"]) in shown else "no")
    assert set(found.loc[found["known"] != "unknown", "truth"]) == {""}
    ours = hidden[hidden["kind"] == "missing"].sort_values("rank").head(50)
    assert result.precision[50] == pytest.approx((ours["truth"] == "yes").mean())
    observed = pd.MultiIndex.from_frame(trained.observed[["image_id", "label"]])
    left = len(shown - set(observed))
    assert result.base_rate == pytest.approx(left / (train.targets.size - len(observed)))


def test_no_label_that_is_said_to_be_there_is_called_missing(trained, result):
    missing = result.found[result.found["kind"] == "missing"]
    assert set(missing["known"]) == {"unknown", "absent"}
    assert set(result.found.loc[result.found["kind"] == "wrong", "known"]) == {"present"}


def test_difficult_objects_are_passed_over_case_27(trained, result):
    strongest = result.found[result.found["known"] == "absent"].iloc[[0]]
    cells = strongest[["image_id", "label"]].reset_index(drop=True)
    marked = replace(trained, manifest=replace(trained.manifest, difficult=cells))
    again = audit(marked).found
    same = (again["image_id"] == cells["image_id"][0]) & (again["label"] == cells["label"][0])
    assert not same.any()


def test_what_nobody_knows_completely_cannot_be_measured(trained):
    labels = trained.params.labels.model_copy(update={"per_image": 1.5})
    own = replace(
        trained,
        params=trained.params.model_copy(update={"labels": labels}),
        manifest=replace(trained.manifest, unlisted="unknown"),
    )
    seen = audit(own)
    assert (seen.precision, seen.base_rate) == ({}, None)
    assert len(describe(seen)) == 2


def test_what_is_written(trained, result, tmp_path):
    write_audit(result, tmp_path, url="http://host/", not_sure="not sure")
    with (tmp_path / "suspicions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["image_id"], row["label"]) for row in rows] == list(
        result.found[["image_id", "label"]].itertuples(index=False, name=None)
    )
    record = json.loads((tmp_path / "audit.json").read_text())
    assert record["run"] == "sspl-40-ridge"
    assert record["data_sha256"] == trained.paths.data_sha256()
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert len(tasks) == len(rows)
    kinds = {row["kind"]: row for row in rows}
    for kind, choice in (("missing", "yes"), ("wrong", "no")):
        row = kinds[kind]
        (task,) = [
            task
            for task in tasks
            if (task["data"]["image_id"], task["data"]["label"]) == (row["image_id"], row["label"])
        ]
        (prediction,) = task["predictions"]
        assert prediction["result"][0]["value"] == {"choices": [choice]}
        score = float(row["score"])
        assert prediction["score"] == pytest.approx(score if choice == "yes" else 1 - score)


def test_the_page_needs_no_network_and_shows_each_picture(result, tmp_path):
    write_audit_page(result, tmp_path / "index.html")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.count("<img ") == page.count('src="data:image/jpeg;base64,') > 24
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)
    assert "prefers-color-scheme: dark" in page
    for line in describe(result):
        assert line.replace("'", "&#39;") in page
