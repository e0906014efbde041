"""What an operator types, and what is answered."""

import json

import pytest
import typer
from typer.testing import CliRunner
from versions import delivery, make_root, stage

from plmcl import schemas
from plmcl.cli import operate
from plmcl.errors import PlmclError
from plmcl.retraining.lock import HeldError, held
from plmcl.retraining.production import Production

app = typer.Typer()
for command in (
    operate.promote, operate.rollback, operate.lineage, operate.prune, operate.forget,
    operate.refreeze,
):  # fmt: skip
    app.command()(command)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = make_root(tmp_path_factory.mktemp("project"))
    for number in (1, 2, 3):
        stage(root, number)
    return root


@pytest.fixture(autouse=True)
def _inside(root, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(root)


def plmcl(*arguments):
    return CliRunner().invoke(app, arguments, catch_exceptions=False).output


def test_promote_and_rollback_say_who_is_the_champion_and_the_way_back(root):
    assert plmcl("promote", "v0001") == "v0001 is the champion; back: plmcl rollback\n"
    assert plmcl("promote", "v0003") == (
        "v0003 is the champion, instead of v0001; back: plmcl rollback\n"
    )
    assert plmcl("rollback") == "v0001 is the champion; v0003 is kept: plmcl promote v0003\n"
    with pytest.raises(PlmclError, match="v0001: the first champion"):
        plmcl("rollback")
    with pytest.raises(PlmclError, match="v0009: no version"):
        plmcl("promote", "v0009")
    assert Production(root).champion.version == "v0001"


def test_lineage_is_for_people_or_for_programs(root):
    Production(root).promote(Production(root).version("v0003"))
    assert plmcl("lineage").splitlines()[0] == "version           v0003, the champion"
    found = json.loads(plmcl("lineage", "models/production/v0001/model.onnx", "--json"))
    assert (found["version"], found["champion"]) == ("v0001", False)


def test_prune_says_what_went(root):
    stage(root, 4)
    lines = plmcl("prune", "--keep", "1").splitlines()
    # v0004 is the newest; v0003 is the champion and comes from v0001.
    assert lines[0].startswith("removed version v0002: ")
    assert lines[0].endswith(" kB")
    assert lines[1] == f"freed {lines[0].partition(': ')[2]}"
    assert "dvc gc" in lines[2]


def test_forget_says_who_has_seen_it_and_what_that_means(root):
    store = root / "data" / "received"
    schemas.write_table(delivery({"a.jpg": "a" * 64}), store / "0001.parquet")
    (store / "0001").mkdir()
    (store / "0001" / "a.jpg").write_bytes(b"a")
    stage(root, 5, deliveries=1)
    lines = plmcl("forget", "delivered/0001/a.jpg").splitlines()
    assert lines[0] == "delivered/0001/a.jpg: gone; v0005 was trained with it"
    assert "Weights keep what they learned" in lines[1]
    assert not (store / "0001" / "a.jpg").exists()


def test_what_changes_something_waits_for_nobody(root):
    changing = (
        ("promote", "v0004"), ("rollback",), ("prune", "--keep", "1"), ("forget", "x"),
        ("refreeze",),
    )  # fmt: skip
    with held(root / ".plmcl" / "retraining" / "lock", "retraining v0006"):
        for arguments in changing:
            with pytest.raises(HeldError, match="retraining v0006"):
                plmcl(*arguments)
        assert "v0003" in plmcl("lineage")


def test_refreeze_says_what_it_did(root, monkeypatch):
    # What it does is tested in tests/retraining.
    monkeypatch.setattr("plmcl.retraining.refreeze.refreeze", lambda root: [f"scored in {root}"])
    assert plmcl("refreeze") == f"scored in {root}\n"


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (2_500_000, "2.5 MB"),
        (3e15, "3000.0 TB"),
    ],
)
def test_sizes_are_for_people(size, words):
    assert operate._in_words(size) == words


def test_each_command_has_an_example():
    for command in app.registered_commands:
        assert f"Example: plmcl {command.callback.__name__}" in command.callback.__doc__
