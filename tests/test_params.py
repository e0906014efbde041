"""Tests of params.yaml's reader: which key, what was expected, what stands there."""

from pathlib import Path

import pytest

from plmcl.errors import PlmclError
from plmcl.params import Params, Section, load_params, parse_section

PARAMS = Path(__file__).parents[1] / "params.yaml"
TEXT = """\
seed: 7
grid: {settings: [sspl-40], methods: [an, plmcl]}
data: {source: folder, path: data/inputs, deliveries: none}
sources: {folder: {labels: null}}
image: {size: 96, background: [255, 255, 255], max_pixels: 50000000}
split: {protocol: holdout, draw: hash, val: 0.2, test: 0.25}
labels: {per_image: null}
model: {backbone: resnet50, weights: none, pooling: mean, head: linear}
train:
  mode: linear
  warm_start: v0002
  precision: 32-true
  threads: 2
  state_memory_mb: 4096
  state_precision: float32
  linear: {epochs: 20, batch_size: 16, learning_rate: 1e-3, views: 8}
  fine_tune:
    epochs: 2
    batch_size: 16
    learning_rate: 1e-4
    head_rate: 1.0
    batch_norm: train
    augmentation: flip
    ema_decay: 0.0
    compile: false
methods: {plmcl: {alpha: 10.0}}
export: {tolerance: 1e-4, variants: [], max_drop: 0.003}
retraining:
  incoming: data/incoming
  settle_seconds: 5
  min_images: 100
  max_age_hours: 168.0
  setting: sspl-40
  start: champion
  update_checkout: false
gate: {min_gain: -0.01, max_label_drop: 0.15, min_positives: 10, resamples: 1000}
tracking: {experiment: no}
"""


class Example(Section):
    """A plug-in's section."""

    alpha: float
    epochs: int
    momentum: float


def load(tmp_path: Path, text: str) -> Params:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    return load_params(path)


def message(tmp_path: Path, text: str) -> list[str]:
    """The lines of the refusal, without the file's name."""
    with pytest.raises(PlmclError) as refusal:
        load(tmp_path, text)
    start = f"{tmp_path / 'params.yaml'}: "
    lines = str(refusal.value).split("\n")
    assert all(line.startswith(start) for line in lines)
    return [line.removeprefix(start) for line in lines]


def test_the_projects_own_file_is_valid():
    assert load_params(PARAMS).grid.methods


def test_values_arrive_with_their_types(tmp_path):
    params = load(tmp_path, TEXT)
    assert params.seed == 7
    assert params.image.background == (255, 255, 255)
    assert params.grid.methods == ("an", "plmcl")
    assert params.labels.per_image is None
    assert params.sources == {"folder": {"labels": None}}


@pytest.mark.parametrize("key", ["deliveries", "warm_start"])
@pytest.mark.parametrize("version", ["v1", "w0001", "v0001/..", "None", "latest"])
def test_a_version_is_none_or_v_and_a_number(tmp_path, key, version):
    before = {"deliveries": "deliveries: none", "warm_start": "warm_start: v0002"}[key]
    (line,) = message(tmp_path, TEXT.replace(before, f"{key}: {version}"))
    assert f"{key}: string should match pattern" in line
    assert load(tmp_path, TEXT.replace(before, f"{key}: v12345")).train.mode == "linear"


def test_half_precision_that_would_need_a_scaled_loss_is_refused_case_64_case_69(tmp_path):
    """With bf16 there is no scale to lose in a crash, and no step that is left out."""
    for precision in ("16-mixed", "16-true", "fp16"):
        (line,) = message(tmp_path, TEXT.replace("precision: 32-true", f"precision: {precision}"))
        assert line == (
            "train.precision: input should be 'auto', '32-true' or 'bf16-mixed', found "
            f'"{precision}"'
        )


def test_the_dialect_is_yaml_1_2_as_dvc_reads_it(tmp_path):
    params = load(tmp_path, TEXT)
    assert params.train.linear.learning_rate == 0.001  # PyYAML (1.1) reads the text "1e-3"
    assert params.tracking.experiment == "no"  # PyYAML (1.1) reads false


def test_an_integer_is_a_number_too(tmp_path):
    params = load(tmp_path, TEXT.replace("per_image: null", "per_image: 3"))
    assert params.labels.per_image == 3.0


def test_sections_cannot_be_changed(tmp_path):
    with pytest.raises(ValueError, match="frozen"):
        load(tmp_path, TEXT).split.val = 0.5


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("seed: 7", "seeed: 7", ["seed: missing", "seeed: unknown key; did you mean 'seed'?"]),
        (
            "protocol: holdout",
            "protocl: holdout",
            ["split.protocol: missing", "split.protocl: unknown key; did you mean 'protocol'?"],
        ),
        (
            "epochs: 20,",
            "epochs: 20, warmup: 3,",
            [
                "train.linear.warmup: unknown key; known keys: epochs, batch_size, learning_rate, "
                "views"
            ],
        ),
        ("val: 0.2, ", "", ["split.val: missing"]),
        ("val: 0.2", "val: no", ['split.val: input should be a valid number, found "no"']),
        ("val: 0.2", "val: .nan", ["split.val: input should be a finite number, found NaN"]),
        ("val: 0.2", "val: .inf", ["split.val: input should be a finite number, found Infinity"]),
        ("val: 0.2", "val: 1.0", ["split.val: input should be less than 1, found 1.0"]),
        ("val: 0.2", "val: null", ["split.val: input should be a valid number, found null"]),
        ("seed: 7", "seed: true", ["seed: input should be a valid integer, found true"]),
        ("seed: 7", "seed: 7.0", ["seed: input should be a valid integer, found 7.0"]),
        ("seed: 7", "seed: '7'", ['seed: input should be a valid integer, found "7"']),
        ("seed: 7", "seed: -1", ["seed: input should be greater than or equal to 0, found -1"]),
        (
            "seed: 7",
            "seed: 2020-01-01",
            ['seed: input should be a valid integer, found {"date": "2020-01-01"}'],
        ),
        (
            "experiment: no",
            "experiment: 007",
            ["tracking.experiment: input should be a valid string, found 7"],
        ),
        (
            "protocol: holdout",
            "protocol: best",
            ["split.protocol: input should be 'holdout' or 'paper', found \"best\""],
        ),
        (
            "max_pixels: 50000000",
            "max_pixels: 178956971",
            ["image.max_pixels: input should be less than or equal to 178956970, found 178956971"],
        ),
        ("[255, 255, 255]", "[255, 255]", ["image.background.2: missing"]),
        (
            "split: {protocol: holdout, draw: hash, val: 0.2, test: 0.25}",
            "split: []",
            ["split: input should be an object, found []"],
        ),
    ],
)
def test_a_wrong_value_is_named_by_its_dotted_path(tmp_path, old, new, expected):
    assert old in TEXT
    assert message(tmp_path, TEXT.replace(old, new)) == expected


@pytest.mark.parametrize("name", ["sspl", "sspl-0", "sspl-101", "sspl-040", "ffl-100", "SSPL-40"])
def test_a_setting_that_does_not_exist_is_refused(tmp_path, name):
    (line,) = message(tmp_path, TEXT.replace("[sspl-40]", f"[{name}]"))
    assert line.startswith("grid.settings.0: string should match pattern")
    assert line.endswith(f'found "{name}"')


def test_an_empty_grid_is_refused(tmp_path):
    (line,) = message(tmp_path, TEXT.replace("[sspl-40]", "[]"))
    assert line.startswith("grid.settings: tuple should have at least 1 item")


def test_all_errors_of_the_file_are_reported_at_once(tmp_path):
    text = TEXT.replace("seed: 7", "seed: x").replace("val: 0.2", "vall: 0.2")
    text = text.replace("size: 96", "size: 5").replace("[an, plmcl]", "[an, A, 3]")
    assert [line.split(":")[0] for line in message(tmp_path, text)] == [
        "seed",
        "grid.methods.1",
        "grid.methods.2",
        "image.size",
        "split.val",
        "split.vall",
    ]


def test_a_key_that_stands_twice_is_refused_with_its_line(tmp_path):
    (line,) = message(tmp_path, TEXT + "seed: 8\n")
    assert line.startswith('not valid YAML: line 38: found duplicate key "seed"')


def test_a_long_value_is_cut_in_the_message(tmp_path):
    (line,) = message(tmp_path, TEXT.replace("seed: 7", f"seed: {'x' * 5000}"))
    assert len(line) < 200


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "input should be an object, found null"),
        (b"a: [1", "not valid YAML: line 1: expected"),
        (b"a: 1\n---\nb: 2\n", "not valid YAML: line 2"),
        (b"a: \x00", "not valid YAML: unacceptable character"),
        (b"a: !!python/object/apply:os.getcwd []", "not valid YAML: line 1: could not determine"),
        (b"seed: \xff", "cannot be read: 'utf-8' codec"),
        (b"a: &a [*a]", "Circular reference"),
    ],
)
def test_a_file_that_is_no_yaml_mapping_is_refused(tmp_path, data, says):
    path = tmp_path / "params.yaml"
    path.write_bytes(data)
    with pytest.raises(PlmclError) as refusal:
        load_params(path)
    assert str(refusal.value).startswith(f"{path}: {says}")


def test_a_missing_file_says_where_to_run(tmp_path):
    with pytest.raises(
        PlmclError, match=r"params\.yaml: not found; run this in the project's root"
    ):
        load_params(tmp_path / "params.yaml")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(PlmclError, match="cannot be read"):
        load_params(tmp_path)


def test_a_plug_ins_section_is_as_strict_and_names_its_full_path():
    values = {"alpha": 1, "epochs": False, "momentm": 0.7}
    with pytest.raises(PlmclError) as refusal:
        parse_section(Example, values, "methods.example")
    assert str(refusal.value).split("\n") == [
        "methods.example.epochs: input should be a valid integer, found false",
        "methods.example.momentum: missing",
        "methods.example.momentm: unknown key; did you mean 'momentum'?",
    ]
    with pytest.raises(PlmclError) as refusal:
        parse_section(Example, None, "methods.example")
    assert str(refusal.value) == "methods.example: input should be an object, found null"


def test_a_plug_ins_section_is_read():
    section = parse_section(Example, {"alpha": 1, "epochs": 2, "momentum": 0.5}, "methods.example")
    assert section == Example(alpha=1.0, epochs=2, momentum=0.5)


def test_a_boosted_head_needs_feature_maps_and_says_which_keys_disagree(tmp_path):
    boosted = TEXT.replace("head: linear", "head: boostlu")
    with pytest.raises(PlmclError) as caught:
        load(tmp_path, boosted)
    assert str(caught.value).endswith(
        "params.yaml: model.head: boostlu sees feature maps, and train.mode linear caches one "
        "vector an image: set train.mode to end_to_end, or model.head to linear"
    )
    trained = boosted.replace("mode: linear", "mode: end_to_end")
    assert load(tmp_path, trained).model.head == "boostlu"
    with pytest.raises(PlmclError, match=r"model\.head: boostlu pools by the mean .*is deviation"):
        load(tmp_path, trained.replace("pooling: mean", "pooling: deviation"))
