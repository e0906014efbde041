"""A training, set up from what the earlier stages wrote: a tiny project of drawn scenes."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from project import ROOT, SMALL, edit_params, run_to_splits

from plmcl.data.images import load
from plmcl.data.manifest import Manifest
from plmcl.errors import PlmclError
from plmcl.evaluation import evaluate, selection_score
from plmcl.labels.store import LabelStore
from plmcl.models import load_classifier
from plmcl.params import Params, load_params
from plmcl.run_record import RunRecord
from plmcl.stages import evaluate as evaluate_stage
from plmcl.stages import export, train
from plmcl.stages.job import Decoded, Job, prepare
from plmcl.stages.paths import Paths

SETTING = "sspl-40"
# At this size the backbone's map has 3 x 3 places.
PARTS = {"train.mode": "linear", "image.size": 96, "model.pooling": "parts", "model.head": "unit"}


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """All that comes before training."""
    root = tmp_path_factory.mktemp("project")
    shutil.copy(ROOT / "params.yaml", root)
    edit_params(root / "params.yaml", SMALL | {"data.path": str(root)})
    run_to_splits(root)
    return root


@pytest.fixture
def params_with(project, tmp_path):
    """The project's params with other values."""

    def load(changes: dict) -> Params:
        shutil.copy(project / "params.yaml", tmp_path)
        edit_params(tmp_path / "params.yaml", changes)
        return load_params(tmp_path / "params.yaml")

    return load


@pytest.fixture
def job_of(project, params_with):
    """A training of a method with other params, set up."""

    def job(method: str, changes: dict | None = None, **arguments) -> Job:
        paths = Paths.of_project(project, "scenes")
        return prepare(paths, params_with(changes or {}), SETTING, method, **arguments)

    return job


@pytest.fixture(scope="module")
def champion(project, tmp_path_factory) -> Path:
    """A fine-tuned PLMCL of the project, as a retraining would lay it down."""
    file = tmp_path_factory.mktemp("champion") / "params.yaml"
    shutil.copy(project / "params.yaml", file)
    edit_params(file, {"train.mode": "end_to_end"})
    params, paths = load_params(file), Paths.of_project(project, "scenes")
    train.run(paths, params, SETTING, "plmcl", track=False)
    shutil.copytree(paths.model(SETTING, "plmcl"), paths.warm("v0001"))
    return paths.warm("v0001")


def fit(job: Job):
    return job.fit(checkpoints=None, on_epoch=lambda entry: None, progress=lambda done, all: None)


def weights_of(job: Job) -> list[torch.Tensor]:
    return [values.clone() for values in job.model.state_dict().values()]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("changes", [{"train.mode": "linear"}, PARTS], ids=["mean", "parts"])
def test_a_head_in_closed_form_needs_no_epochs(job_of, changes):
    job = job_of("ridge", changes)
    backbone = [values.clone() for values in job.model.backbone.state_dict().values()]
    fitted = fit(job)
    assert fitted.best_epoch == 0
    (entry,) = fitted.history
    assert entry["epoch"] == 0
    assert entry["phase"].startswith("solved, part ")
    assert np.isfinite(entry["train/loss"])
    assert entry["val/mAP"] == fitted.best_score[1]
    assert same(backbone, list(job.model.backbone.state_dict().values()))
    # What the head holds is what was scored, from the files as from the cached features.
    mode = job.params.train.model_copy(update={"mode": "end_to_end"})
    of_images = replace(job, params=job.params.model_copy(update={"train": mode}))
    for probs in (job.predict(job.selection), of_images.predict(job.selection)):
        scored = evaluate(job.selection.targets, job.selection.observed, probs)
        assert selection_score(scored)[1] == pytest.approx(fitted.best_score[1])


def test_the_closed_form_that_is_best_on_the_selection_split_is_kept(job_of):
    job = job_of("ridge", PARTS)
    best = fit(job).best_score[1]
    scores = {}
    for penalty in job.method.penalties:
        for rounds in (1, 2):
            section = {"penalties": (penalty,), "rounds": (rounds,)}
            alone = replace(job, method=job.method.model_copy(update=section))
            scores[penalty, rounds] = fit(alone).best_score[1]
    assert best == max(scores.values())
    assert min(scores.values()) < best  # they do differ: the test can fail


@pytest.mark.slow
def test_a_saved_closed_form_is_evaluated_and_exported(project, params_with):
    params, paths = params_with(PARTS), Paths.of_project(project, "scenes")
    record = train.run(paths, params, SETTING, "ridge", track=False)
    assert record == RunRecord.read(paths.run(SETTING, "ridge") / "run.json")
    assert [entry["epoch"] for entry in record.history] == [0]
    names = Manifest.read(paths.manifests).label_names
    model, saved = load_classifier(paths.model(SETTING, "ridge") / "model.pt", names)
    assert (saved.best_epoch, saved.head, saved.pooling) == (0, "unit", "parts")
    assert model.head.center.abs().sum() > 0
    metrics = evaluate_stage.run(paths, params, SETTING, "ridge", track=False).metrics
    job = prepare(paths, params, SETTING, "ridge")
    fit(job)
    scored = evaluate(job.test.targets, job.test.observed, job.predict(job.test))
    assert metrics["mAP"] == pytest.approx(scored.metrics["mAP"])
    assert export.run(paths, params, SETTING, "ridge").stat().st_size > 10_000


def test_the_closed_form_competes_with_the_epochs_of_fine_tuning(job_of):
    job = job_of("ridge", {"train.fine_tune.epochs": 2})
    fitted = fit(job)
    assert [entry["epoch"] for entry in fitted.history] == [0, 1, 2]
    assert [entry["phase"].split(",")[0] for entry in fitted.history] == [
        "solved",
        "fine_tune",
        "fine_tune",
    ]
    scores = [entry["val/mAP"] for entry in fitted.history]
    assert fitted.best_score[1] == max(scores)
    assert fitted.best_epoch == scores.index(max(scores))
    # The solved head is where fine-tuning starts, whatever the mode.
    whole = fit(job_of("ridge", {"train.fine_tune.epochs": 2, "train.mode": "end_to_end"}))
    assert whole.history == fitted.history


def test_fine_tuning_that_spoils_the_closed_form_is_not_kept(job_of):
    changes = {"train.fine_tune.learning_rate": 3e-3}
    spoilt, solved = job_of("ridge", changes), job_of("ridge", {"train.mode": "linear"})
    before, after = (entry["val/mAP"] for entry in fit(spoilt).history)
    fit(solved)
    assert after < before
    assert same(weights_of(spoilt), weights_of(solved))


def test_a_method_that_solves_and_finds_nothing_is_named(job_of, monkeypatch):
    job = job_of("ridge", {"train.mode": "linear"})
    monkeypatch.setattr(type(job.method), "solve", lambda *_: iter(()))
    with pytest.raises(PlmclError, match="Ridge: no head in closed form was found"):
        fit(job)


@pytest.mark.parametrize("method", ["an", "ridge"])
def test_the_center_is_the_mean_of_the_training_features(job_of, method):
    job = job_of(method, PARTS)
    assert (job.model.head.center == 0).all()
    fit(job)
    features = job.features_of(job.train)[0]
    torch.testing.assert_close(job.model.head.center, features.mean(dim=0))
    assert features.shape == (len(job.train), sum(job.model.head.parts))


@pytest.mark.parametrize("mode", ["linear", "end_to_end"])
def test_a_method_with_strong_views_trains(job_of, mode):
    job = job_of("fixmatch", {"train.mode": mode, "train.linear.epochs": 1})
    assert job.method.needs_strong_view
    before = weights_of(job)
    fitted = fit(job)
    assert [entry["phase"] for entry in fitted.history] == [
        {"linear": "linear", "end_to_end": "fine_tune"}[mode]
    ]
    assert np.isfinite(fitted.history[0]["train/loss"])
    assert not same(before, weights_of(job))


def test_strong_views_are_as_many_as_the_params_say_and_differ(job_of):
    job = job_of("fixmatch", {"train.linear.views": 3})
    job.compute_features()
    views = job.features_of(job.train, "randaugment", 3)
    assert views.shape == (3, len(job.train), job.model.num_features)
    assert not torch.equal(views[0], views[1])


@pytest.mark.parametrize("method", ["ridge", "plmcl"])
def test_decoded_pixels_train_the_same_as_files(job_of, method):
    files = job_of(method)
    rows = [files.train, files.selection, files.test]
    ids = [image_id for part in rows for image_id in part.image_ids]
    loaded = [load(files.images / path, files.recipe) for part in rows for path in part.paths]
    # In another order than that of any split.
    decoded = Decoded(ids[::-1], np.stack(loaded[::-1]))
    memory = job_of(method, decoded=decoded)
    assert fit(memory) == fit(files)
    assert same(weights_of(memory), weights_of(files))
    np.testing.assert_array_equal(memory.predict(memory.test), files.predict(files.test))


def test_what_a_state_begins_with_follows_from_the_seed_alone(job_of):
    """ROLE draws; the generator that everything else draws from stays as it was."""
    drawn = {}
    for name, seed, before in (("one", 0, 1), ("again", 0, 2), ("other", 5, 1)):
        torch.manual_seed(before)
        expected = torch.rand(1)
        torch.manual_seed(before)
        job = job_of("role", {"seed": seed})
        assert torch.rand(1) == expected
        drawn[name] = job.store.state["latent"][~job.observations.observed]
    assert torch.equal(drawn["one"], drawn["again"])
    assert not torch.equal(drawn["one"], drawn["other"])


def test_the_head_follows_from_the_seed_and_the_backbone_is_not_shared(job_of):
    first, second = job_of("an"), job_of("an")
    assert same(weights_of(first), weights_of(second))
    before = weights_of(second)
    fit(first)
    assert same(before, weights_of(second))
    assert not same(before, weights_of(first))


WARM = {"train.warm_start": "v0001"}


def test_a_training_starts_from_the_champions_weights_and_label_state(job_of, champion):
    cold, warm = job_of("plmcl"), job_of("plmcl", WARM)
    assert cold.start is None
    saved, record = load_classifier(champion / "model.pt", warm.label_names)
    assert same(weights_of(warm), list(saved.state_dict().values()))
    assert not same(weights_of(warm), weights_of(cold))
    state = LabelStore.load(champion / "labels").state
    unobserved = ~warm.observations.observed
    for name, values in warm.store.state.items():
        assert torch.equal(values, state[name])  # what is observed stood still
        assert not torch.equal(values[unobserved], cold.store.state[name][unobserved])
    assert warm.start.text == (
        "warm start from v0001: 4 of 4 label rows of the head, "
        f"the label state of {len(warm.train)} of {len(warm.train)} images"
    )
    assert warm.weights.source == "v0001/model.pt"
    assert record.weights == "none"


def test_a_label_that_is_added_later_gets_a_row_of_its_own_case_48(project, params_with, champion):
    """Case 48: 4 labels then, 5 now, the new one in front; what was learned of the 4 stays."""
    paths = Paths.of_project(project, "scenes")
    known = Manifest.read(paths.manifests)
    grown = replace(known, label_names=['a, "new" one', *known.label_names])
    job = prepare(paths, params_with(WARM), SETTING, "plmcl", manifest=grown)
    saved, _ = load_classifier(champion / "model.pt", known.label_names)
    assert torch.equal(job.model.head.weight[1:], saved.head.weight)
    kept = LabelStore.load(champion / "labels").state
    for name, values in job.store.state.items():
        assert torch.equal(values[:, 1:], kept[name])
    assert job.start.text == (
        "warm start from v0001: 4 of 5 label rows of the head, the label state of "
        f"{len(job.train)} of {len(job.train)} images; labels new: 'a, \"new\" one'"
    )
    fit(job)
    assert job.predict(job.test).shape == (len(job.test), 5)


def test_another_method_takes_the_weights_alone(job_of, champion):
    cold, warm = job_of("role"), job_of("role", WARM)
    assert not same(weights_of(warm), weights_of(cold))
    assert all(torch.equal(warm.store.state[n], cold.store.state[n]) for n in cold.store.state)
    assert "no label state, since its own is that of sspl-40-plmcl" in warm.start.text


@pytest.mark.parametrize("method", ["an", "ridge"])
def test_a_head_alone_learns_on_features_of_the_champions_own_backbone(job_of, champion, method):
    """It was fine-tuned: what is cached of the pretrained backbone is of other weights."""
    cold = job_of(method, {"train.mode": "linear"})
    warm = job_of(method, WARM | {"train.mode": "linear"})
    fit(cold)
    backbone = [values.clone() for values in warm.model.backbone.state_dict().values()]
    fit(warm)
    assert same(backbone, list(warm.model.backbone.state_dict().values()))
    assert not torch.equal(warm.features_of(warm.test), cold.features_of(cold.test))
    mode = warm.params.train.model_copy(update={"mode": "end_to_end"})
    of_images = replace(warm, params=warm.params.model_copy(update={"train": mode}))
    np.testing.assert_allclose(warm.predict(warm.test), of_images.predict(warm.test), atol=1e-5)


def test_a_head_in_closed_form_takes_no_row_of_the_champions(job_of, champion):
    cold, warm = job_of("ridge"), job_of("ridge", WARM)
    assert torch.equal(warm.model.head.weight, cold.model.head.weight)
    assert "no row of the head" in warm.start.text


def test_a_champion_that_learned_from_a_test_image_is_refused(job_of, champion, project):
    job = job_of("an")
    other = project / "data/warm/v0002"
    other.mkdir()
    shutil.copy(champion / "model.pt", other)
    LabelStore([*job.train.image_ids, job.test.image_ids[0]], {}).save(other / "labels")
    with pytest.raises(PlmclError, match="v0002 learned from 1 images that are held out now"):
        job_of("an", {"train.warm_start": "v0002"})


def test_a_champion_of_another_kind_is_refused(job_of, champion):
    with pytest.raises(PlmclError, match=r"v0001 has the head linear, and model\.head is unit"):
        job_of("an", WARM | {"model.head": "unit"})


def test_a_training_says_what_it_started_from_and_is_another_one(
    project, params_with, champion, capsys
):
    paths, params = (
        Paths.of_project(project, "scenes"),
        params_with(WARM | {"train.mode": "linear"}),
    )
    record = train.run(paths, params, SETTING, "an", track=False)
    assert "\nwarm start from v0001: 4 of 4 label rows of the head, no label state\n" in (
        capsys.readouterr().out
    )
    assert record.params["train.warm_start"] == "v0001"
    assert record.tags["ap"] == "step-wise, ties grouped, known cells, macro mean"  # case 59

    def identity():
        return train.identity(paths, params, SETTING, "an", prepare(paths, params, SETTING, "an"))

    before = identity()
    assert identity() == before
    ids = LabelStore.load(champion / "labels").image_ids
    LabelStore([*ids[1:], ids[0]], LabelStore.load(champion / "labels").state).save(
        champion / "labels"
    )
    try:
        assert identity() != before  # a checkpoint of the other one is not gone on with
    finally:
        LabelStore(ids, LabelStore.load(champion / "labels").state).save(champion / "labels")
