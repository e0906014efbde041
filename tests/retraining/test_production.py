"""One champion everywhere: in the folder, in git and in MLflow; whatever is killed, and when."""

import itertools
import json
import pathlib
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest
from versions import LABELS, git, make_root, stage

from plmcl import mlflow_store
from plmcl.errors import PlmclError
from plmcl.mlflow_store import open_store
from plmcl.retraining import production as module
from plmcl.retraining import registry
from plmcl.retraining.production import Production


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """One project for the module, in which versions follow each other."""
    return make_root(tmp_path_factory.mktemp("project"))


@pytest.fixture(autouse=True)
def _default_address(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


_numbers = itertools.count(1)


def stage_next(root, **changes):
    return stage(root, next(_numbers), **changes)


def promote_next(root):
    version = stage_next(root)
    Production(root).promote(version)
    return version.version


def everywhere(root):
    """The champion, which is the same in the folder, in git and in MLflow, with all its files."""
    champion = Production(root).champion
    champion.check()
    assert git(root, "rev-parse", "production") == champion.record.commit
    client = open_store("plmcl", root).client
    alias = client.get_model_version_by_alias("plmcl", "champion")
    assert alias.tags["plmcl.model_sha256"] == champion.record.model_sha256
    assert alias.status == "READY"
    assert int(alias.version) == champion.record.registry_version
    names = {path.name for path in champion.path.iterdir()}
    assert names == {
        "model.onnx", "model.pt", "labels", "record.json", "run.json", "metrics.json",
        "per_label.csv", "predictions.parquet", "truth.parquet",
    }  # fmt: skip
    assert not [path for path in Production(root).folder.iterdir() if path.name[0] == "."]
    return champion.version


# --- stage ------------------------------------------------------------------------------------


def test_a_staged_version_has_all_that_the_next_retraining_needs_and_is_not_served(root):
    version = stage_next(root)
    assert Production(root).champion is None
    assert Production(root).versions() == [version]
    assert version.version == version.path.name == "v0001"
    scored = version.scored()
    assert scored.predictions["label"].tolist() == LABELS
    assert scored.truth["value"].tolist() == [1, 0, 0]
    assert scored.complete
    assert (version.path / "labels" / "latent.npy").exists()


def test_a_version_staged_again_takes_the_place_of_the_unfinished_one(root):
    before = Production(root).version("v0001")
    again = Production(root).stage(
        "v0001",
        model_dir=root / "made" / "v0001",
        run_dir=root / "made" / "v0001",
        truth=before.scored().truth,
        record=replace(before.record, created=99),
    )
    assert again.record.created == 99
    assert Production(root).versions() == [again]


def test_a_model_that_is_not_the_one_in_the_record_is_not_staged(root):
    version = Production(root).version("v0001")
    with pytest.raises(PlmclError, match="damaged, or changed by hand"):
        Production(root).stage(
            "v0009",
            model_dir=root / "made" / "v0001",
            run_dir=root / "made" / "v0001",
            truth=version.scored().truth,
            record=replace(version.record, version="v0009", model_sha256="0" * 64),
        )
    assert Production(root).versions() == [version]


def test_a_version_that_is_not_there_is_named_beside_those_that_are(root):
    with pytest.raises(PlmclError, match=r"v0007: no version in .*there are: v0001"):
        Production(root).version("v0007")


# --- promote and roll back --------------------------------------------------------------------


def test_without_a_champion_nothing_is_rolled_back_and_nothing_to_mend(root):
    assert Production(root).reconcile() == [
        "removed .v0009.tmp, left half-made in " + str(root / "models" / "production")
    ]
    with pytest.raises(PlmclError, match="no champion"):
        Production(root).roll_back()


def test_promotions_and_roll_backs_are_the_same_everywhere(root):
    production = Production(root)
    production.promote(production.version("v0001"))
    assert everywhere(root) == "v0001"
    assert [promote_next(root), promote_next(root)] == ["v0002", "v0003"]
    assert everywhere(root) == "v0003"
    link = root / "models" / "production" / "champion"
    assert str(link.readlink()) == "v0003"  # also where the project is moved or mounted
    assert [v.record.previous for v in production.versions()] == ["", "v0001", "v0002"]

    assert production.roll_back().version == everywhere(root) == "v0002"
    assert production.roll_back().version == everywhere(root) == "v0001"
    with pytest.raises(PlmclError, match="v0001: the first champion"):
        production.roll_back()
    assert everywhere(root) == "v0001"
    assert production.reconcile() == []

    # A newer one is still there, and comes back with the one that it now replaces.
    production.promote(production.version("v0003"))
    assert everywhere(root) == "v0003"
    assert production.roll_back().version == "v0001"


def test_promoting_what_the_champion_comes_from_makes_no_circle(root):
    production = Production(root)
    for name in ("v0002", "v0003", "v0001"):
        production.promote(production.version(name))
    assert everywhere(root) == "v0001"
    with pytest.raises(PlmclError, match="the first champion"):
        production.roll_back()


def test_promoting_the_champion_again_changes_nothing(root):
    production = Production(root)
    before = production.champion
    production.promote(before)
    assert production.champion == before
    assert everywhere(root) == before.version


def test_the_champion_is_not_staged_over(root):
    champion = Production(root).champion
    made = root / "made" / champion.version
    with pytest.raises(PlmclError, match="is the champion"):
        Production(root).stage(
            champion.version,
            model_dir=made,
            run_dir=made,
            truth=champion.scored().truth,
            record=champion.record,
        )


def test_a_damaged_model_is_neither_promoted_nor_rolled_back_to(root):
    production = Production(root)
    damaged = stage_next(root)
    damaged.model.write_bytes(damaged.model.read_bytes()[:-1] + b"?")
    with pytest.raises(PlmclError, match="damaged, or changed by hand"):
        production.promote(damaged)
    before = everywhere(root)
    promote_next(root)
    model = production.version(before).model
    content = model.read_bytes()
    model.write_bytes(b"nothing")
    with pytest.raises(PlmclError, match="damaged"):
        production.roll_back()
    model.write_bytes(content)
    assert production.roll_back().version == before


def test_the_reasons_of_the_gate_are_tags_of_the_run(root):
    version = stage_next(root)
    decision = {"promote": True, "reasons": ["mAP rose", "no label fell"]}
    (version.path / "decision.json").write_text(json.dumps(decision))
    Production(root).promote(version)
    (version.path / "decision.json").unlink()
    assert run_tags(root, version)["plmcl.decision"] == "promoted: mAP rose; no label fell"
    refused = stage_next(root)
    Production(root).note(refused, "refused", ["mAP fell"])
    tags = run_tags(root, refused)
    assert tags["plmcl.decision"] == "refused: mAP fell"
    assert tags["plmcl.version"] == refused.version


def run_tags(root, version):
    store = open_store("plmcl", root)
    return store.find(version.record.mlflow_run_id, None).data.tags


def test_a_branch_that_is_checked_out_is_left_alone_and_named(root):
    git(root, "checkout", "-q", "production")
    try:
        version = promote_next(root)
        (said,) = Production(root).reconcile()
        assert said.startswith(f"left branch production, checked out in {root}")
    finally:
        git(root, "checkout", "-q", "main")
    assert Production(root).champion.version == version
    (said,) = Production(root).reconcile()
    assert said.startswith("moved branch production to ")
    assert everywhere(root) == version


def test_a_link_that_leads_nowhere_is_refused(tmp_path):
    root = make_root(tmp_path)
    folder = root / "models" / "production"
    folder.mkdir(parents=True)
    (folder / "champion").symlink_to("v0004")
    with pytest.raises(PlmclError, match="leads to v0004, which is not there"):
        Production(root).reconcile()


def test_without_mlflow_the_way_back_is_open_and_the_way_forward_is_not(root, monkeypatch):
    production = Production(root)
    before = everywhere(root)
    now, new = promote_next(root), stage_next(root)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////proc/none/mlflow.db")
    with pytest.raises(PlmclError):
        production.promote(new)
    assert production.champion.version == now
    with pytest.raises(PlmclError):
        production.roll_back()
    assert production.champion.version == before
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert production.reconcile() == [f"moved MLflow's alias champion to {before}"]
    assert everywhere(root) == before


def test_another_store_is_filled_with_the_champion(root, tmp_path, monkeypatch):
    before = everywhere(root)
    other = make_root(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{other}/mlflow.db")
    assert Production(root).reconcile() == [f"moved MLflow's alias champion to {before}"]
    assert everywhere(root) == before
    assert Production(root).champion.record.registry_version == 1


# --- killed -----------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing of ours catches it."""


CHANGING = {
    "create_run", "log_batch", "log_text", "set_terminated", "save_package", "log_artifacts",
    "create_registered_model", "create_model_version", "set_registered_model_alias",
}  # fmt: skip


def die_after(monkeypatch, steps):
    """The process ends after so many steps that change something; True once it has."""
    left = [steps]

    def counted(function):
        def step(*arguments, **options):
            result = function(*arguments, **options)
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return result

        return step

    call = mlflow_store.call

    def counted_call(uri, method, /, *arguments, **options):
        run = counted(call) if getattr(method, "__name__", "") in CHANGING else call
        return run(uri, method, *arguments, **options)

    for place in (mlflow_store, registry):
        monkeypatch.setattr(place, "call", counted_call)
    for name in ("replace", "symlink_to"):
        monkeypatch.setattr(pathlib.Path, name, counted(getattr(pathlib.Path, name)))
    monkeypatch.setattr(module, "git", counted(module.git))
    return lambda: left[0] <= 0


@pytest.mark.slow
def test_a_promotion_killed_after_any_step_leaves_one_champion(root, monkeypatch):
    before = promote_next(root)
    promoted = 0
    for steps in itertools.count(1):
        version = stage_next(root)
        with monkeypatch.context() as patched:
            died = die_after(patched, steps)
            with suppress(Killed):
                Production(root).promote(version)
            if not died():
                break
        Production(root).reconcile()
        now = everywhere(root)
        assert now in (before, version.version)
        promoted += now == version.version
        if steps % 3 == 0:  # what was killed is done again
            Production(root).promote(Production(root).version(version.version))
            assert Production(root).champion.record.previous == before
            now = everywhere(root)
            assert now == version.version
        before = now
    assert steps > 10  # that many steps there are
    assert promoted >= 3  # the link, the branch, the alias, the tags


@pytest.mark.slow
def test_a_roll_back_killed_after_any_step_leaves_one_champion(root, monkeypatch):
    promote_next(root)
    for steps in itertools.count(1):
        before, now = Production(root).champion.version, promote_next(root)
        with monkeypatch.context() as patched:
            died = die_after(patched, steps)
            with suppress(Killed):
                Production(root).roll_back()
            if not died():
                break
        Production(root).reconcile()
        assert everywhere(root) in (before, now)
    assert steps > 3
    assert everywhere(root) == before


@pytest.mark.parametrize("steps", range(1, 4))
def test_staging_killed_after_any_step_leaves_what_was_there(tmp_path, monkeypatch, steps):
    root = make_root(tmp_path)
    version = stage(root, 1)
    with monkeypatch.context() as patched:
        die_after(patched, steps)
        with pytest.raises(Killed):
            stage(root, 2)
    Production(root).reconcile()
    there = Production(root).versions()
    assert there[0] == version
    assert len(there) <= 2
    for one in there:
        one.check()


def test_nothing_here_imports_torch_and_mlflow_only_when_it_is_asked():
    code = (
        "import sys, plmcl.retraining.production, plmcl.retraining.lineage, plmcl.pyfunc, "
        "plmcl.retraining.housekeeping, plmcl.retraining.forgetting, plmcl.cli.operate\n"
        "print(sorted({'torch', 'lightning_fabric', 'mlflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
