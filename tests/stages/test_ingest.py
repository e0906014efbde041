"""What the stage says of its files and labels, and what deliveries add to them."""

import hashlib
import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from project import ROOT, edit_params
from tables import manifest

from plmcl.data.manifest import Manifest
from plmcl.data.sources.base import Annotations
from plmcl.errors import PlmclError
from plmcl.params import Params, load_params
from plmcl.schemas import Delivery, write_table
from plmcl.stages import download, ingest
from plmcl.stages.paths import Paths


def save(path, shade):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), (shade, shade, shade)).save(path)


def params_with(root, deliveries) -> Params:
    shutil.copy(ROOT / "params.yaml", root)
    changes = {"data.source": "folder", "data.path": "photos", "data.deliveries": deliveries}
    edit_params(root / "params.yaml", changes | {"sources.folder.unlisted": "negative"})
    return load_params(root / "params.yaml")


@pytest.fixture
def project(tmp_path) -> Paths:
    """Photos of cats and dogs in the folders of their tags, and one delivery with one tag."""
    for shade, name in enumerate(("cat/a.png", "cat/b.png", "dog/c.png")):
        save(tmp_path / "photos" / name, shade)
    delivered = tmp_path / "data/deliveries/v0001"
    rows = []
    for shade, name, tag in ((50, "x.png", "dog"), (51, "y.png", "")):
        save(delivered / "0001" / name, shade)
        sha256 = hashlib.sha256((delivered / "0001" / name).read_bytes()).hexdigest()
        rows.append((name, "ok", "", sha256, "", 8, 6, 9, tag, 0, ""))
    contract = Delivery.to_schema().columns
    table = pd.DataFrame(rows, columns=list(contract))
    types = {name: column.dtype.type for name, column in contract.items()}
    write_table(table.astype(types), delivered / "0001.parquet")
    paths = Paths.of_project(tmp_path, "folder")
    download.run(paths, params_with(tmp_path, "none"))
    return paths


def test_deliveries_are_added_to_the_manifest_and_counted(project, capsys):
    base = ingest.run(project, params_with(project.root, "none"))
    assert "delivered" not in capsys.readouterr().out
    both = ingest.run(project, params_with(project.root, "v0001"))
    assert Manifest.read(project.manifests).label_names == both.label_names == base.label_names
    assert both.images["image_id"].tolist()[3:] == ["delivered/0001/x.png", "delivered/0001/y.png"]
    assert all((project.images / path).is_file() for path in both.images["path"])
    for now, before in ((both.images, base.images), (both.labels, base.labels)):
        pd.testing.assert_frame_equal(now[: len(before)], before)
    printed = capsys.readouterr().out
    assert "delivered since: 2 images in 1 deliveries, 1 with a tag" in printed
    # Of x it is not known whether a cat is there, of y nothing is.
    assert "  cat: 2 / 1 / 2\n  dog: 2 / 2 / 1\n" in printed


def test_a_version_that_is_not_there_is_named(project):
    with pytest.raises(
        PlmclError, match=r"data\.deliveries: v0007: .*v0007 is not there; run: dvc"
    ):
        ingest.run(project, params_with(project.root, "v0007"))


def test_labels_that_differ_by_case_or_spaces_alone_are_shown():
    world = manifest(["a"], label_names=["Cat", "Ice  cream", "cat", "dog", "ice cream"])
    labels = Annotations(".", [], {}, world.labels, world.label_names, "unknown")
    (said,) = [line for line in ingest.summary(world, labels).split("\n") if "alike" in line]
    assert said.endswith("alike but for case or spaces: 'Cat / cat', 'Ice  cream / ice cream'")


def test_five_of_the_files_that_are_set_aside_are_named():
    world = manifest([f"{i}.png" for i in range(8)], status=["ok"] + ["truncated"] * 7)
    labels = Annotations(".", [], {}, world.labels, world.label_names, "unknown")
    (said,) = [line for line in ingest.summary(world, labels).split("\n") if "aside" in line]
    named = ", ".join(f"'{i}.png (truncated)'" for i in range(1, 6))
    assert said == f"set aside, 7: {named}, …"


@pytest.mark.parametrize(
    ("unlisted", "lines"),
    [
        ("negative", ["  cat: 1 / 2 / 2", "  dog: 2 / 2 / 1", "  elk: 0 / 3 / 2"]),
        ("unknown", ["  cat: 1 / 1 / 3", "  dog: 2 / 0 / 3", "  elk: 0 / 1 / 4"]),
    ],
)
def test_the_counts_worked_out_by_hand(unlisted, lines):
    """a, b and c are the base set; l and m came later, d cannot be used."""
    truth = {("a", "cat"): 1, ("a", "elk"): 0, ("b", "dog"): 1, ("b", "cat"): 0, ("l", "dog"): 1,
             ("d", "elk"): 1}  # fmt: skip
    status = ["ok", "converted", "ok", "empty", "ok", "ok"]
    world = manifest(
        list("abcdlm"),
        truth,
        unlisted=unlisted,
        status=status,
        delivery=np.array([0] * 4 + [1] * 2),
    )
    labels = Annotations(".", [], {}, world.labels, world.label_names, unlisted)
    assert ingest.summary(world, labels).split("\n") == [
        "files: 1 converted, 1 empty, 4 ok",
        "set aside, 1: 'd (empty)'",
        "delivered since: 2 images in 1 deliveries, 1 with a tag",
        "3 labels (yes / no / unknown):",
        *lines,
    ]
