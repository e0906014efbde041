import dataclasses
import json
import math
import re
import warnings
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from report_runs import (
    CAT,
    HOSTILE,
    IMAGES,
    METRICS,
    NA,
    POSITIVES_ONLY,
    SPLITS,
    make_manifest,
    make_run,
)

from plmcl.errors import PlmclError
from plmcl.report import top, words, write_report
from plmcl.report.results import kept_of, read_result


class Page(HTMLParser):
    """The page's visible text, its attributes, and what stands in elements of a class."""

    def __init__(self, html):
        super().__init__()
        self.html, self.tags, self.attributes, self.texts = html, [], [], []
        self.feed(html.partition("</style>")[2])
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)

    def chips(self, verdict):
        found = re.findall(rf'<span class="tag {verdict}" [^>]*>(.*?)</span>', self.html)
        return [Page(f"</style>{chip}").text for chip in found]


@pytest.fixture
def write(tmp_path):
    """Writes the page of some runs; a picture of each image lies in raw/."""
    raw = tmp_path / "raw"
    raw.mkdir()
    for name in IMAGES:
        if "/" not in name:
            Image.new("RGB", (8, 8), "red").save(raw / name)
    (raw / "<b>c<").mkdir()
    Image.new("RGB", (8, 8), "red").save(raw / "<b>c<" / "b>.png")

    def write(*folders, manifest=None, splits=SPLITS, raw=raw):
        out = tmp_path / "reports" / "index.html"
        write_report(folders, manifest or make_manifest(), splits, raw, out)
        return Page(out.read_text(encoding="utf-8"))

    return write


def said(*folders):
    """The remarks on some runs, as one text."""
    results = [read_result(folder) for folder in folders]
    return " ".join(top.remarks(results, kept_of(results)))


def headline(*folders):
    """That of some runs, from the method on."""
    results = [read_result(folder) for folder in folders]
    return top.headline(results, kept_of(results))


def reached(folder, mean, validation):
    return make_run(folder, metrics=METRICS | {"mAP": mean}, selection=(0.1, validation))


def test_the_headline_names_the_kept_run_and_the_next(tmp_path):
    plmcl = reached(tmp_path / "sspl-40-plmcl", 0.8126, 0.9)
    results = [read_result(reached(tmp_path / "sspl-40-an", 0.75, 0.8)), read_result(plmcl)]
    assert top.headline(results, kept_of(results)) == (
        "plmcl is kept under sspl-40 (one label of 40\u00a0% of the images, none of the others), "
        "chosen on the validation split: mAP 81.3 on 3 test images; next is an with 75.0."
    )
    assert top.subject(results, make_manifest()).startswith(
        "2 runs on 3 images (1 truncated set aside) with 3 labels, on average 1.3"
    )


def test_the_headline_counts_the_test_images_of_which_something_is_known(tmp_path):
    run = make_run(
        tmp_path / "given-an", metrics=METRICS | {"images_scored": 60, "images_known": 16}
    )
    assert "mAP 75.0 on 16 labeled test images" in headline(run)


def test_a_run_that_is_higher_on_the_test_split_is_named_but_not_kept(tmp_path, write):
    an, plmcl = tmp_path / "sspl-40-an", tmp_path / "sspl-40-plmcl"
    reached(an, 0.75, 0.9)
    reached(plmcl, 0.8126, 0.8)
    page = write(an, plmcl)
    assert (
        "an is kept under sspl-40 (one label of 40 % of the images, none of the others), chosen on "
        "the validation split: mAP 75.0 on 3 test images; plmcl has a higher test figure, 81.3."
    ) in page.text
    assert "an: 75.0 (mAP) - plmcl report" in page.html
    assert re.search(r"75\.0 (± [0-9.]+ )?kept", page.text)
    assert re.search(r"81\.3 (± [0-9.]+ )?highest here", page.text)
    # The rest of the page is about the kept run, too.
    assert "Labels of the kept run an under sspl-40." in page.text
    assert "the labels that an under sspl-40 predicts" in page.text


def test_a_run_that_is_kept_and_highest_has_both_marks(tmp_path, write):
    page = write(
        reached(tmp_path / "sspl-40-an", 0.5, 0.5), reached(tmp_path / "sspl-40-plmcl", 0.75, 0.9)
    )
    assert re.search(r"75\.0 (± [0-9.]+ )?kept, highest here", page.text)


def test_the_headline_compares_figures_as_they_are_printed(tmp_path):
    an = reached(tmp_path / "sspl-40-an", 0.75, 0.9)
    level = reached(tmp_path / "sspl-40-plmcl", 0.75001, 0.8)
    assert headline(an, level).endswith("mAP 75.0 on 3 test images; plmcl is level.")
    assert "choice" not in said(an, level)


def test_a_higher_figure_of_another_setting_has_the_settings_name(tmp_path):
    runs = [reached(tmp_path / "fspl-an", 0.8, 0.7), reached(tmp_path / "sspl-40-an", 0.75, 0.9)]
    assert headline(*runs).endswith("; fspl-an has a higher test figure, 80.0.")
    runs = [reached(tmp_path / "fspl-an2", 0.8, 0.9), reached(tmp_path / "sspl-60-an", 0.75, 0.7)]
    assert headline(*runs).endswith("mAP 80.0 on 3 test images.")


def test_the_first_of_equal_runs_is_kept_as_fit_keeps_it(tmp_path):
    names = ("sspl-40-an", "sspl-40-plmcl")
    results = [read_result(make_run(tmp_path / name)) for name in names]
    assert kept_of(results) is results[0]
    unknown = read_result(make_run(tmp_path / "sspl-40-epr", selection=(None, None)))
    assert kept_of([unknown, results[1]]) is results[1]
    assert kept_of([unknown]) is unknown


def test_the_table_has_a_row_a_method_a_column_a_setting_and_says_what_is_missing(tmp_path, write):
    page = write(
        make_run(tmp_path / "sspl-20-an", metrics=METRICS | {"mAP": 0.25}),
        make_run(tmp_path / "sspl-60-an", metrics=METRICS | {"mAP": 0.5}),
        make_run(tmp_path / "sspl-60-plmcl", metrics=METRICS | {"mAP": 0.75}, end_time=None),
    )
    table = page.html.partition("<tbody>")[2].partition("</tbody>")[0]
    rows = [Page(f"</style>{row}").text for row in table.split("<tr>")[1:]]
    rows = [re.sub(" ± [0-9.]+", "", row) for row in rows]
    assert rows == [
        "an 25.0 kept trained in 3 min 20 s 50.0 trained in 3 min 20 s",
        "plmcl not run 75.0 highest here",
    ]
    assert "Every run: 2 of 3 labels averaged, 3 images." in page.text


def test_runs_that_were_measured_on_different_images_say_so_each(tmp_path, write):
    page = write(
        make_run(tmp_path / "fspl-an"),
        make_run(tmp_path / "fspl-epr", metrics=METRICS | {"images_known": 2}),
    )
    assert "2 of 3 labels averaged, 3 images; trained" in page.text
    assert "2 of 3 labels averaged, 2 labeled images; trained" in page.text


def test_names_may_hold_any_character_and_become_no_markup(tmp_path, write):
    page = write(make_run(tmp_path / "sspl-40-plmcl"))
    assert "script" not in page.tags
    assert "b" not in page.tags
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert HOSTILE in page.text  # in the table
    assert "<script>alert('1')<…" in page.text  # in the chart, cut
    assert ("alt", "<b>c</b>.png") in page.attributes
    assert page.html.count("<svg") == page.html.count("</svg>")


def test_the_page_needs_nothing_from_elsewhere(tmp_path, write):
    page = write(make_run(tmp_path / "sspl-40-plmcl"))
    for name, value in page.attributes:
        if name in ("src", "href", "xlink:href"):
            assert value.startswith(("data:image/jpeg;base64,", "#"))
    assert not {"link", "script", "iframe", "object", "a"} & set(page.tags)
    assert not re.search(r"url\((?!['\"]?#)|@import|https?://", page.html)


def test_colours_follow_the_readers_light_or_dark(tmp_path, write):
    page = write(make_run(tmp_path / "sspl-40-plmcl"))
    assert "@media (prefers-color-scheme: dark)" in page.html
    charts = re.findall(r"<svg viewBox=\"0 0 360.*?</svg>", page.html, flags=re.DOTALL)
    assert len(charts) == 6
    for chart in charts:
        assert re.findall(r"(?:fill|stroke): #\w+", chart) == []
        assert "var(--ink-2)" in chart
        assert "var(--c0)" in chart


def test_the_same_runs_give_the_same_page(tmp_path, write):
    folder = make_run(tmp_path / "sspl-40-plmcl")
    assert write(folder).html == write(folder).html


def test_case_49_a_label_without_a_positive_is_na_with_its_reason_never_zero_or_nan(
    tmp_path, write
):
    page = write(make_run(tmp_path / "sspl-40-plmcl"))
    assert "n/a: no positive" in page.text
    assert "n/a (no positive) 0 3 0 0.250 best F1" in page.text
    assert not re.search(r"\bnan\b|\bNone\b", page.text)


def test_only_positives_known_means_no_map_and_the_page_says_why(tmp_path, write):
    only = {"metrics": POSITIVES_ONLY, "ap": (None, None, None), "negatives": (0, 0, 0)}
    page = write(
        make_run(tmp_path / "given-an", **only),
        make_run(
            tmp_path / "given-plmcl",
            **(only | {"metrics": POSITIVES_ONLY | {"mean_reciprocal_rank": 0.9}}),
        ),
        manifest=make_manifest("unknown"),
    )
    assert (
        "an is kept under given (the labels as given), chosen on the validation split: mean "
        "reciprocal rank 0.800 on 3 test images; plmcl has a higher test figure, 0.900."
    ) in page.text
    assert (
        "mAP is n/a: every label that is known on the test images is a positive one, and on those "
        "alone any model has an average precision of 1."
    ) in page.text
    assert page.text.count("every label that is known on the test images") == 1
    assert "Average precision is n/a for every label" in page.text
    assert page.html.count('<svg viewBox="0 0 360') == 1  # no chart without a bar in it
    assert not re.search(r"\bnan\b|\bNone\b", page.text)


def test_no_figure_at_all_is_said_and_does_not_break_the_page(tmp_path, write):
    nothing = POSITIVES_ONLY | {"mean_reciprocal_rank": None, "labels_without_positives": 3}
    page = write(
        make_run(tmp_path / "fspl-an", metrics=nothing, ap=(None,) * 3, selection=(None, None))
    )
    assert "No figure: no label has both a known positive and a known negative" in page.text
    assert "n/a: no epoch of any run has a figure" in page.text


def test_the_reason_why_there_is_no_map_stands_below_the_table_and_not_in_its_rows(tmp_path, write):
    nothing = POSITIVES_ONLY | {"mean_reciprocal_rank": None, "labels_without_positives": 3}
    names = ("fspl-an", "fspl-epr", "fspl-plmcl")
    page = write(*(make_run(tmp_path / name, metrics=nothing, ap=(None,) * 3) for name in names))
    table, _, rest = page.html.partition("<tbody>")[2].partition("</tbody>")
    assert Page(f"</style>{table}").text.count("n/a") == 3
    assert "no label has both" not in table
    assert rest.partition("<details>")[0].count("mAP is n/a: no label has both") == 1


def test_a_run_chosen_on_the_test_split_is_called_optimistic(tmp_path, write):
    page = write(
        make_run(tmp_path / "sspl-40-an", tags={"protocol": "paper", "seed": "0"}),
        make_run(tmp_path / "sspl-40-plmcl"),
    )
    cells = [
        cell for cell in page.html.split("<td")[1:] if "optimistic: chosen on the test" in cell
    ]
    assert len(cells) == 1
    assert "On new images expect less." in page.text


def test_why_a_run_is_kept_that_is_not_the_highest_is_said(tmp_path):
    text = said(
        reached(tmp_path / "sspl-40-an", 0.75, 0.9), reached(tmp_path / "sspl-40-plmcl", 0.8, 0.8)
    )
    assert "there no run is ahead of sspl-40-an. The test split only measures" in text
    assert "no run is ahead" not in said(tmp_path / "sspl-40-plmcl")


def test_a_method_below_the_baseline_is_said_with_advice_case_41(tmp_path):
    def fig(value):
        return {"metrics": METRICS | {"mAP": value}}

    text = said(
        make_run(tmp_path / "sspl-20-an", **fig(0.5)),
        make_run(tmp_path / "sspl-20-role", **fig(0.4)),
        make_run(tmp_path / "sspl-20-epr", **fig(0.5)),
        make_run(tmp_path / "fspl-role", **fig(0.3)),  # no baseline here
    )
    assert (
        "Under sspl-20, an (50.0), which only takes every unknown label for absent, is better than "
        "role (40.0): try another learning rate, more epochs, or another method." in text
    )
    assert text.count("is better than") == 1


def test_drawn_pictures_are_called_a_stand_in(tmp_path):
    text = said(make_run(tmp_path / "sspl-40-an", params={"data.source": "scenes"}))
    assert "say nothing about photographs" in text


# --- the gallery ------------------------------------------------------------------------------


def test_predictions_are_marked_against_complete_labels(tmp_path, write):
    page = write(make_run(tmp_path / "sspl-40-plmcl"))
    assert page.html.count("<img ") == 3
    assert page.chips("right") == [f"✓ {CAT} 90 %", f"✓ {NA} 50 %"]  # 0.5 reaches 0.5
    assert page.chips("wrong") == [f"✗ {NA} 60 %"]
    assert sorted(page.chips("missed")) == [f"○ {HOSTILE} 20 %", f"○ {CAT} 40 %"]
    assert page.chips("unknown") == []
    assert "nobody looked" not in page.text


def test_a_prediction_that_nobody_looked_at_is_neither_right_nor_wrong(tmp_path, write):
    page = write(make_run(tmp_path / "sspl-40-plmcl"), manifest=make_manifest("unknown"))
    assert page.chips("wrong") == []
    assert page.chips("unknown") == [f"? {NA} 60 %"]


def test_pictures_that_are_gone_or_outside_the_folder_are_left_out(tmp_path, write):
    run = make_run(tmp_path / "sspl-40-plmcl")
    page = write(run, raw=tmp_path / "nowhere")
    assert "<img " not in page.html
    assert "n/a: no picture of the test split" in page.text
    manifest = make_manifest()
    Image.new("RGB", (8, 8)).save(tmp_path / "secret.png")
    manifest.images["path"] = ["../secret.png", str(tmp_path / "secret.png"), "b.png", "d.png"]
    assert write(run, manifest=manifest).html.count("<img ") == 1


def test_pictures_are_small_whatever_their_size(tmp_path, write):
    noise = np.random.default_rng(0).integers(0, 255, (1000, 1500, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "raw" / "a.png")
    page = write(make_run(tmp_path / "sspl-40-plmcl"))
    assert len(page.html) < 200_000


# --- many labels ------------------------------------------------------------------------------


def test_of_many_labels_both_ends_are_shown(tmp_path, write):
    run = make_run(tmp_path / "sspl-40-plmcl")
    names = [f"label {i}" for i in range(100)]
    per_label = pd.DataFrame({"label": names, "ap": [i / 100 for i in range(100)]})
    per_label = per_label.assign(positives=1, negatives=1, unknown=0, threshold=0.5)
    three = pd.read_csv(run / "per_label.csv", keep_default_na=False)
    three = three.assign(ap=0.45)
    per_label = pd.concat([per_label.assign(threshold_rule="k"), three])
    per_label.to_csv(run / "per_label.csv", index=False)
    page = write(run)
    assert "The 30 highest and the 30 lowest of 103 are shown" in page.text
    charts = page.html.partition("Labels of the run")[2].partition("<details>")[0]
    shown = [int(number) for number in re.findall(r">label (\d+)<", charts)]
    assert shown == [*range(99, 69, -1), *range(29, -1, -1)]


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("run.json", None, "run the train stage"),
        ("history.csv", None, "run the train stage"),
        ("pseudo_labels.csv", None, "run the train stage"),
        ("metrics.json", None, "run the evaluate stage"),
        ("per_label.csv", None, "run the evaluate stage"),
        ("predictions.parquet", None, "predictions.parquet"),
        ("metrics.json", "{", "metrics.json"),
        ("metrics.json", json.dumps(METRICS | {"mAP": math.nan}), "NaN is no figure"),
        ("metrics.json", json.dumps(METRICS | {"mAP": "0.5"}), "mAP must be a number or null"),
        ("metrics.json", "{}", "mAP"),
        ("history.csv", "epoch,phase\n1,linear\n", "train_loss"),
        ("history.csv", "epoch,phase,train_loss,selection\n1,linear,x,1\n", "'x'"),
        ("per_label.csv", "label\ncat\n", "run the evaluate stage again"),
    ],
)
def test_a_file_that_is_missing_or_wrong_is_named(tmp_path, write, file, text, words):
    run = make_run(tmp_path / "sspl-40-plmcl")
    if text is None:
        (run / file).unlink()
    else:
        (run / file).write_text(text)
    with pytest.raises(PlmclError, match=words) as caught:
        write(run)
    assert str(run / file) in str(caught.value)


def test_predictions_of_other_labels_are_refused(tmp_path, write):
    run = make_run(tmp_path / "sspl-40-plmcl")
    lines = (run / "per_label.csv").read_text().splitlines()
    (run / "per_label.csv").write_text("\n".join(lines[:1] + lines[2:]))
    with pytest.raises(PlmclError, match=r"predictions\.parquet has label 'cat'"):
        write(run)


def test_no_run_is_refused(write):
    with pytest.raises(PlmclError, match="no run to report"):
        write()


def test_pictures_in_two_splits_are_shown_case_30(tmp_path, write):
    """Case 30: two pairs look alike across splits; of one a file is gone."""
    pairs = pd.DataFrame(
        {"image_id": ["a.png", "a.png"], "other_id": ["b.png", IMAGES[2]], "distance": [3, 1]}
    ).astype({"image_id": "str", "other_id": "str", "distance": np.int32})
    manifest = dataclasses.replace(make_manifest(), near_duplicates=pairs)
    run = make_run(tmp_path / "sspl-40-an")
    page = write(run, manifest=manifest)
    assert "Look alike: 2 pairs of images in different splits" in page.text
    assert "a.png (train) and b.png (val) ; 3 of 128 bits differ" in page.text.replace(");", ") ;")
    # the nearer pair first
    assert page.text.index("1 of 128 bits") < page.text.index("3 of 128 bits")
    assert "The same picture in two splits" not in write(run).text
    # A pair is shown without the picture that is gone.
    pictures = page.html.count("<img ")
    (tmp_path / "raw" / "b.png").unlink()
    page = write(run, manifest=manifest)
    assert "3 of 128 bits differ" in page.text
    assert page.html.count("<img ") == pictures - 2  # in the gallery, too


def test_same_bytes_in_two_published_splits_are_named_case_30(tmp_path, write):
    """Case 30: a published split may hold the same picture twice, and the page says so."""
    manifest = make_manifest()
    images = manifest.images.assign(sha256=["1", "1", "2", "3"], split=["train", "val", "", ""])
    page = write(
        make_run(tmp_path / "sspl-40-an"), manifest=dataclasses.replace(manifest, images=images)
    )
    assert "Equal bytes: a.png, b.png." in page.text


def test_the_papers_figure_stands_beside_a_run_like_the_papers(tmp_path):
    """Table 1, COCO, end to end: PLMCL at 40 %; with smoothing the row is AN-LS."""
    params = {"model.backbone": "resnet50", "train.mode": "end_to_end", "data.source": "coco"}
    run = read_result(make_run(tmp_path / "sspl-40-plmcl", params=params))
    assert words.published(run) == "the paper: 65.1"
    smoothed = params | {"methods.an.smoothing": 0.1}
    assert words.published(read_result(make_run(tmp_path / "fspl-an", params=smoothed))) == (
        "the paper: 66.9"
    )
    for number, other in enumerate(({"model.backbone": "resnet18"}, {"data.source": "folder"})):
        folder = make_run(tmp_path / f"{number}" / "sspl-40-plmcl", params=params | other)
        assert words.published(read_result(folder)) == ""


def test_figures_of_difficult_objects_are_shown_where_there_are_any_case_27(tmp_path, write):
    """Case 27: both figures, each under its own name; no column for them elsewhere."""
    both = METRICS | {"mAP_difficult_negative": 0.6983, "mAP_difficult_ignored": 0.7741}
    page = write(make_run(tmp_path / "sspl-40-an", metrics=both))
    assert "mAP, difficult objects counted as absent (published protocol)" in page.text
    assert "69.83" in page.text
    assert "77.41" in page.text
    assert "difficult" not in write(make_run(tmp_path / "sspl-60-an")).text


def test_a_head_in_closed_form_has_its_point_in_the_chart(tmp_path, write):
    curve = {"epoch": [0], "phase": ["solved"], "train_loss": [0.1], "selection": [0.7]}
    alone = make_run(tmp_path / "sspl-40-ridge")
    pd.DataFrame(curve).to_csv(alone / "history.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of an axis without length
        page = write(alone)
    assert page.html.count("<svg") == page.html.count("</svg>") > 0
