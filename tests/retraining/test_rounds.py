"""When a retraining is due, and what it does not need."""

import json
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from project import ROOT, edit_params, environment
from versions import make_root, stage

from plmcl.retraining.decision import Decision
from plmcl.retraining.rounds import Outcome, Retraining, Round
from plmcl.schemas import Delivery, write_table

HOUR = 3600


@pytest.fixture
def project(tmp_path):
    """Wants 3 images, or 2 hours."""
    (tmp_path / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    edit_params(
        tmp_path / "params.yaml", {"retraining.min_images": 3, "retraining.max_age_hours": 2.0}
    )
    return tmp_path


def deliver(root, number, statuses, hours_ago=0.0):
    table = pd.DataFrame(
        {
            "name": [f"{row}.jpg" for row in range(len(statuses))],
            "status": statuses,
            "reason": "",
            "sha256": [f"{number}{row}" for row in range(len(statuses))],
            "dhash": "",
            "width": np.int32(8),
            "height": np.int32(8),
            "bytes": np.int64(100),
            "label": "",
            "arrived": np.int64((time.time() - hours_ago * HOUR) * 1000),
            "version": "",
        }
    )
    texts = ["name", "status", "reason", "sha256", "dhash", "label", "version"]
    table = table.astype(dict.fromkeys(texts, "str"))[list(Delivery.to_schema().columns)]
    (root / "data/received").mkdir(parents=True, exist_ok=True)
    write_table(table, root / "data/received" / f"{number:04d}.parquet")


def ended(root, version, deliveries, result="refused"):
    folder = root / ".plmcl/retraining"
    folder.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(version, deliveries, result, [], [])
    (folder / "last.json").write_text(json.dumps(outcome.__dict__))


def test_the_first_retraining_waits_for_nothing(project):
    due = Retraining(project).due()
    assert (due.now, due.reason) == (True, "there is no champion yet")


@pytest.mark.parametrize(
    ("statuses", "hours_ago", "now", "reason"),
    [
        ([], 0, False, "no new image since v0004 was refused"),
        (["truncated", "duplicate"], 9, False, "no new image since v0004 was refused"),
        (["ok", "ok", "truncated"], 0.5, False,
         "2 new images of the 3 that are enough, the oldest waiting for 0.5 h of 2 h"),
        (["ok"] * 3, 0, True, "3 new images, 3 are enough"),
        (["ok"], 2.5, True, "1 new images, the oldest waiting for 2.5 h"),
    ],
)  # fmt: skip
def test_enough_images_or_an_old_one_make_it_due(project, statuses, hours_ago, now, reason):
    deliver(project, 1, ["ok"] * 9, hours_ago=99)  # was part of v0004
    if statuses:
        deliver(project, 2, statuses, hours_ago)
    ended(project, "v0004", deliveries=1)
    due = Retraining(project).due()
    assert (due.now, due.reason) == (now, reason)


def test_an_interrupted_one_goes_on_whatever_has_arrived(project):
    ended(project, "v0004", deliveries=0)
    path = project / ".plmcl/retraining/round.json"
    path.write_text(json.dumps(Round("v0005", "0" * 40, "", 0, 0).__dict__))
    due = Retraining(project).due()
    assert (due.now, due.reason) == (True, "v0005 was interrupted: it goes on")


def test_a_retraining_needs_no_server():
    """Neither does it load what its stages load, in processes of their own."""
    code = (
        "import sys, plmcl.retraining.rounds; "
        "print([m for m in ('prefect', 'torch', 'mlflow', 'dvc') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(PYTHONPATH=str(ROOT / "src")),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.fixture
def served(project):
    """A project with two promoted versions, and the round of the second not yet at its end."""
    make_root(project)
    retraining = Retraining(project)
    for number in (1, 2):
        retraining.production.promote(stage(project, number))
    retraining.folder.mkdir(parents=True)
    unfinished = Round("v0002", "0" * 40, "v0001", 3, 12)
    (retraining.folder / "round.json").write_text(json.dumps(unfinished.__dict__))
    return retraining


@pytest.mark.slow
def test_a_retraining_killed_after_its_promotion_is_only_brought_to_its_end(served):
    current = served.begin()
    assert (current.version, current.deliveries) == ("v0002", 3)
    assert not served.checkout.path.exists()  # nothing is run again
    decision = Decision(True, ["it is better"], {}, [], "v0001", "v0002")
    decision.write(served.production.champion.path / "decision.json")
    outcome = served.conclude(current, served.judge(current, print), [])
    assert (outcome.result, outcome.reasons) == ("promoted", ["it is better"])
    assert served.production.champion.version == "v0002"
    assert served.last == outcome
    assert not served.due().now


@pytest.mark.slow
def test_a_roll_back_ends_the_retraining_that_made_the_champion(served):
    assert served.roll_back().version == "v0001"
    assert not (served.folder / "round.json").exists()
