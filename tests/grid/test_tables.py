"""The files of a table, written from hand-made runs."""

import csv
import math
import re

import pytest
from grid.small import grid, runs

from plmcl.errors import PlmclError
from plmcl.grid.tables import write_tables

ROWS = {
    "BCE": {"method": "bce", "setting": "ffl", "reference": True},
    "AN": {"method": "an"},
    "EPR": {"tune": {"methods.epr.weight": [1.0, 2.0]}},
    "PLMCL": {"method": "plmcl"},
}
RUNS = [
    ("BCE", "ffl", "", (0.9, 0.9), (0.95, 0.95)),
    ("AN", "sspl-20", "", (0.9, 0.9), (0.70, 0.72)),
    ("AN", "fspl", "", (0.9, None), (0.75, None)),
    ("EPR", "sspl-20", "weight=1", (0.8, 0.8), (0.80, 0.84)),
    ("EPR", "sspl-20", "weight=2", (0.7, 0.7), (0.90, 0.90)),
    ("PLMCL", "sspl-20", "", (0.9, 0.9), (0.81, 0.87)),
    ("PLMCL", "fspl", "", (0.9, 0.9), (0.88, 0.88)),
]


def write(
    folder, dataset="photos", lines=RUNS, rows=ROWS, selection="val/mAP", source=None, **others
):
    """The files' texts by their names."""
    spec = grid(rows, compare={"rows": ["PLMCL"]}, **others)
    results = runs(*lines, selection=selection)
    paths = write_tables(
        spec, results, folder / "out", dataset,
        source=source or dataset, num_train=1000, num_labels=20,
    )  # fmt: skip
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


def rows_of(text):
    return list(csv.DictReader(text.splitlines()))


def test_the_files_are_those_that_are_returned_and_no_others(tmp_path):
    assert set(write(tmp_path)) == {path.name for path in (tmp_path / "out").iterdir()}
    assert set(write(tmp_path)) == {
        "table.md", "table.tex", "table.csv", "tuning.csv", "comparisons.csv", "cost.svg"
    }  # fmt: skip


def test_without_a_wish_to_compare_and_without_numbers_of_images_those_files_are_not_there(
    tmp_path,
):
    paths = write_tables(grid(ROWS), runs(*RUNS), tmp_path, "photos", source="folder")
    assert [path.name for path in paths] == ["table.md", "table.tex", "table.csv", "tuning.csv"]


def test_the_markdown_table_by_hand(tmp_path):
    """Deviations: of 70 and 72 sqrt 2; of 80 and 84 sqrt 8; of 81 and 87 sqrt 18; of equals 0."""
    text = write(tmp_path)["table.md"]
    assert (
        """
|  | sspl-20 | fspl |
| --- | --- | --- |
| BCE (ffl) | 95.0 ± 0.0 | 95.0 ± 0.0 |
| AN | 71.0 ± 1.4 | 75.0 (1 of 2 seeds) |
| EPR | 82.0 ± 2.8 | missing |
| PLMCL | **84.0 ± 4.2** | 88.0 ± 0.0 |

## Missing

- AN, fspl: seed 1
- EPR, fspl: every seed

"""
        in text
    )


def test_the_markdown_comparisons_by_hand(tmp_path):
    """Under sspl-20 1 and 3 points above EPR: t = 2, p = 0.295. Under fspl one pair with AN."""
    text = write(tmp_path)["table.md"]
    assert (
        """
| row | setting | against | difference | pairs | p | p (Holm) |
| --- | --- | --- | --- | --- | --- | --- |
| PLMCL | sspl-20 | EPR | +2.0 | 2 | 0.295 | 0.295 |
| PLMCL | fspl | AN | +13.0 | 1 | n/a | n/a |

"""
        in text
    )
    assert "so the choice favours the other row" in text
    assert "Holm's correction is for 1 test." in text


def test_the_price_of_each_setting_by_hand(tmp_path):
    """1,000 images with 20 labels: 20,000, 200 and 1,000 labels of 28.8 s."""
    assert write(tmp_path)["table.md"].endswith(
        """
| setting | hours |
| --- | --- |
| ffl | 160.0 |
| sspl-20 | 1.6 |
| fspl | 8.0 |
"""
    )


def test_the_notes_say_what_the_figures_are(tmp_path):
    text = write(tmp_path, title="Photos, 20 %")["table.md"]
    assert text.startswith(
        "# Photos, 20 %\n\n"
        "- Test mAP in % on photos: mean ± sample standard deviation over 2 seeds (0, 1).\n"
    )
    assert "on the validation split, over 2 seeds (0, 1): every candidate is in" in text
    assert "ptimistic" not in text
    assert "brackets" not in text


def test_one_seed_has_no_deviation_and_the_table_says_what_that_means(tmp_path):
    lines = [(row, setting, c, val[:1], test[:1]) for row, setting, c, val, test in RUNS]
    text = write(tmp_path, lines=lines, seeds=[0])["table.md"]
    assert "of one seed (0): a small difference may be chance" in text
    assert "| AN | 70.0 | 75.0 |" in text


def test_what_was_chosen_on_the_test_split_is_called_optimistic(tmp_path):
    text = write(tmp_path, selection="selected_on_test/mAP")["table.md"]
    assert "**Optimistic: chosen on the test split.**" in text
    assert "Tuned for each row and setting on the test split" in text


def test_the_papers_figures_stand_beside_ours_on_its_data_sets_alone(tmp_path):
    text = write(tmp_path, "voc", published="resnet50/linear_init")["table.md"]
    assert "| BCE (ffl) | 95.0 ± 0.0 [90.1] | 95.0 ± 0.0 [90.1] |" in text
    assert "| AN | 71.0 ± 1.4 [78.6] | 75.0 (1 of 2 seeds) [87.7] |" in text
    assert "| EPR | 82.0 ± 2.8 [82.6] | missing [85.6] |" in text
    assert "the paper's figure (arXiv 2208.09999, resnet50/linear_init)" in text
    own = write(tmp_path, "voc", source="folder", published="resnet50/linear_init")["table.md"]
    assert "on voc:" in own  # a user's folder of that name
    assert "[90.1]" not in own


def test_a_table_that_the_paper_does_not_have_is_refused_whatever_the_data_set(tmp_path):
    with pytest.raises(PlmclError, match="found 'resnet50'"):
        write(tmp_path, published="resnet50")
    assert not (tmp_path / "out").exists()


def test_the_long_table_holds_every_entry_in_full(tmp_path):
    rows = rows_of(write(tmp_path, "voc", published="resnet50/linear_init")["table.csv"])
    assert len(rows) == 8
    assert rows[0] == {
        "row": "BCE", "column": "sspl-20", "setting": "ffl", "reference": "True", "candidate": "",
        "seeds": "2", "mean": "95", "deviation": "0", "best": "False", "lacks": "",
        "published": "90.1",
    }  # fmt: skip
    epr, missing = rows[4], rows[5]
    assert (epr["candidate"], float(epr["mean"])) == ("weight=1", 82)
    assert float(epr["deviation"]) == pytest.approx(math.sqrt(8), abs=1e-5)
    assert (missing["mean"], missing["seeds"]) == ("", "0")
    assert missing["lacks"] == "2 of 2 candidates; seed 0; seed 1"
    assert [(row["row"], row["column"]) for row in rows if row["best"] == "True"] == [
        ("PLMCL", "sspl-20")
    ]


def test_the_tables_of_candidates_and_comparisons(tmp_path):
    files = write(tmp_path)
    candidates = rows_of(files["tuning.csv"])
    assert [(c["candidate"], c["val"], c["chosen"]) for c in candidates if c["row"] == "EPR"] == [
        ("weight=1", "80", "True"),
        ("weight=2", "70", "False"),
    ]
    first, second = rows_of(files["comparisons.csv"])
    assert (first["row"], first["column"], first["against"]) == ("PLMCL", "sspl-20", "EPR")
    assert float(first["difference"]) == pytest.approx(2)
    assert float(first["p"]) == pytest.approx(1 - 2 * math.atan(2) / math.pi, abs=1e-6)
    assert (second["pairs"], second["p"]) == ("1", "")


def test_the_latex_table_by_hand(tmp_path):
    text = write(tmp_path, "voc", published="resnet50/linear_init")["table.tex"]
    assert text.endswith(
        r"""\begin{tabular}{lrr}
\toprule
 & sspl-20 & fspl \\
\midrule
BCE (ffl) & 95.0 $\pm$ 0.0 {[}90.1{]} & 95.0 $\pm$ 0.0 {[}90.1{]} \\
AN & 71.0 $\pm$ 1.4 {[}78.6{]} & 75.0 (1 of 2 seeds) {[}87.7{]} \\
EPR & 82.0 $\pm$ 2.8 {[}82.6{]} & missing {[}85.6{]} \\
PLMCL & \textbf{84.0 $\pm$ 4.2} {[}83.1{]} & 88.0 $\pm$ 0.0 {[}88.7{]} \\
\bottomrule
\end{tabular}
"""
    )


HOSTILE = "[a] | b* & 50% of $x_1$ #~^ \\ {c} <i>`d`</i> \x07"


def test_any_name_is_text_in_markdown_and_latex(tmp_path):
    rows = {HOSTILE: {}, "PLMCL": {}}
    lines = [(HOSTILE, "fspl", "", (0.9, 0.9), (0.8, 0.8))]
    files = write(tmp_path, lines=lines, rows=rows, title=HOSTILE)
    line = next(line for line in files["table.md"].splitlines() if line.startswith("| \\["))
    assert len(re.findall(r"(?<!\\)\|", line)) == 4  # three cells
    # What stands behind a backslash is that character, in CommonMark.
    cell = re.split(r"(?<!\\)\|", line)[1].strip()
    assert re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", cell) == HOSTILE.replace("\x07", "\ufffd")
    assert not re.search(r"(?<!\\)[*_`<$\[]", cell)
    assert files["table.tex"].splitlines()[6] == (
        r"{[}a{]} \textbar{} b{*} \& 50\% of \$x\_1\$ \#\textasciitilde{}\textasciicircum{} "
        r"\textbackslash{} \{c\} \textless{}i\textgreater{}`d`\textless{}/i\textgreater{} "
        "\ufffd & missing & 80.0 $\\pm$ 0.0 \\\\"
    )
    assert rows_of(files["table.csv"])[0]["row"] == HOSTILE


def test_a_title_of_two_lines_stays_a_heading_and_a_comment(tmp_path):
    files = write(tmp_path, title="a\nb")
    assert files["table.md"].splitlines()[0] == "# a b"
    assert files["table.tex"].splitlines()[0] == "% a b"
