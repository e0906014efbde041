"""What `plmcl fit` refuses before it imports torch, and in whose words."""

import sys
from dataclasses import replace

import pytest
from project import ROOT, run_command

from plmcl.errors import PlmclError
from plmcl.stages.fit import write_params
from plmcl.stages.request import Request, in_options, survey


@pytest.fixture
def request_of(tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in ("a.jpg", "b.jpg"):
        (photos / name).write_bytes(b"not opened")
    (tmp_path / "labels.csv").write_text("image,labels\na.jpg,cat\nb.jpg,\n")
    asked = Request(
        photos=photos,
        labels=tmp_path / "labels.csv",
        unlisted="unknown",
        setting="given",
        methods=["epr"],
    )

    def make(text=None, **changes):
        if text is not None:
            asked.labels.write_text(text)
        return replace(asked, **changes)

    return make


def refusal(request, out):
    with pytest.raises(PlmclError) as caught:
        survey(request, out)
    assert not out.exists()
    return in_options(str(caught.value))


def test_the_names_and_the_labels_are_read_and_nothing_is_written(request_of, tmp_path):
    found = survey(request_of(), tmp_path / "out")
    assert found.files == ["a.jpg", "b.jpg"]
    assert list(found.labels.itertuples(index=False, name=None)) == [("a.jpg", "cat", 1)]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "changes", "words"),
    [
        ("image,lables\na.jpg,cat\n", {}, "unknown column 'lables'; is 'labels' meant?"),
        ("image,cat\na.jpg,-1\n", {}, "say which: --minus-one is negative or unknown"),
        ("image,labels\na.jpg,cat\nc.jpg,cat\n", {}, "(--missing says how many need not be there)"),
        ("image,labels\na.jpg,\n", {}, "none of the 2 images has a label; give some of them"),
        (None, {"labels": None}, "or say where labels are (--labels)"),
        (None, {"format": "excel"}, "--format: must be auto or one of coco, csv, "),
        (None, {"setting": "sspl40"}, "setting 'sspl40': expected ffl, fspl, given, or"),
        (None, {"methods": ["epr", "erp"]}, "--method erp: unknown method; known: an, "),
        (None, {"labels_per_photo": 0.0}, "--labels-per-photo: must be a number above 0, found 0"),
        (None, {"labels_per_photo": float("nan")}, "--labels-per-photo: must be a number above 0"),
    ],
)
def test_what_cannot_be_used_is_said_in_the_words_of_the_options(
    request_of, tmp_path, text, changes, words
):
    message = refusal(request_of(text, **changes), tmp_path / "out")
    assert words in message
    assert "sources.folder" not in message


def test_labels_of_no_known_format_and_photos_that_are_not_there(request_of, tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("a.jpg cat\n")
    message = refusal(request_of(labels=notes), tmp_path / "out")
    assert "notes.txt: looks like no label format; say which it is: coco, csv, " in message
    assert message.endswith("(--format)")
    nowhere = tmp_path / "nowhere"
    assert f"{nowhere}: not a folder" in refusal(request_of(photos=nowhere), tmp_path / "out")


def test_a_share_of_the_photos_may_be_missing(request_of, tmp_path):
    asked = request_of("image,labels\na.jpg,cat\nc.jpg,cat\n", missing=0.5)
    assert survey(asked, tmp_path / "out").files == ["a.jpg", "b.jpg"]
    assert asked.values()["sources"]["folder"]["missing"] == 0.5


def test_the_number_of_labels_is_called_as_its_option_is():
    said = "labels.per_image: 9 labels an image on average, of 5 labels in all"
    assert (
        in_options(said) == "--labels-per-photo: 9 labels an image on average, of 5 labels in all"
    )


def test_a_wrong_label_file_is_refused_without_torch_or_mlflow(request_of, tmp_path):
    asked = request_of("image,lables\na.jpg,cat\n")
    code = (
        "import sys; from plmcl.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, *({'torch', 'mlflow'} & set(sys.modules)))"
    )
    out = tmp_path / "out"
    command = ("fit", asked.photos, "--labels", asked.labels, "--out", out)
    done = run_command(sys.executable, "-c", code, *map(str, command), cwd=ROOT,
                       PYTHONPATH=str(ROOT / "src"))  # fmt: skip
    assert done.stdout == "2\n"
    assert done.stderr.startswith(f"error: {asked.labels}, line 2: unknown column 'lables'")
    assert not out.exists()


@pytest.mark.parametrize("name", ["params.yaml", "notes.txt", "model.onnx"])
def test_a_folder_that_holds_something_else_is_not_overwritten(request_of, tmp_path, name):
    out = tmp_path / "out"
    out.mkdir()
    survey(request_of(), out)  # an empty one is fine
    (out / name).write_text("seed: 7\n")
    with pytest.raises(PlmclError) as caught:
        survey(request_of(), out)
    assert str(caught.value).startswith(f"--out: {out} is there and no tagger of plmcl fit")
    assert [path.name for path in out.iterdir()] == [name]
    with pytest.raises(PlmclError, match="is there and no tagger"):
        survey(request_of(), out / name)


def test_the_folder_of_an_earlier_fit_is_used_again_also_if_that_had_only_begun(
    request_of, tmp_path
):
    out = tmp_path / "out"
    out.mkdir()
    written = out / "params.yaml"
    write_params(request_of(), written)
    (out / "model.onnx").write_bytes(b"an older one")
    whole = written.read_text()
    for length in (len(whole), 40, 12, 0):  # as a kill may leave it
        written.write_text(whole[:length])
        survey(request_of(), out)
