import json

import pytest

from plmcl.errors import PlmclError
from plmcl.retraining.decision import Decision

DECISION = Decision(
    promote=False,
    reasons=["new labels, not compared: a|b", "test mAP 49.0 against 47.8"],
    figures={"test_mAP": 0.49, "test_images": 7, "gain": None},
    labels=[
        {
            "label": "cat",
            "champion_AP": 0.5,
            "challenger_AP": 0.4375,
            "difference": -0.0625,
            "positives": 3,
        },
        {
            "label": "a|b",
            "champion_AP": None,
            "challenger_AP": 1.0,
            "difference": None,
            "positives": 0,
        },
    ],
    champion="v0001",
    challenger="v0002",
)


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "decision.json"
    DECISION.write(path)
    assert Decision.read(path) == DECISION
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"promote": "yes"}, "promote: Input should be a valid boolean"),
        ({"because": 1}, "because: Unexpected keyword argument"),
        ({"figures": {"gain": "1"}}, "figures.gain"),
        ({"reasons": None}, "reasons: Input should be a valid array"),
    ],
)
def test_a_record_that_was_changed_is_refused(tmp_path, changes, message):
    path = tmp_path / "decision.json"
    DECISION.write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(PlmclError) as error:
        Decision.read(path)
    assert str(error.value).startswith(f"{path}: {message}")


def test_a_missing_record_is_said_to_be(tmp_path):
    with pytest.raises(PlmclError, match=r"d\.json: not found; no gate has judged this version"):
        Decision.read(tmp_path / "d.json")


def test_for_people():
    assert DECISION.table() == [
        {
            "label": "cat",
            "champion AP": "50.0",
            "challenger AP": "43.8",
            "difference": "-6.2",
            "positives": "3",
        },
        {
            "label": "a|b",
            "champion AP": "n/a",
            "challenger AP": "100.0",
            "difference": "n/a",
            "positives": "0",
        },
    ]
    assert DECISION.markdown().splitlines() == [
        "# v0002 is refused: v0001 stays",
        "",
        r"- new labels, not compared: a\|b",
        "- test mAP 49.0 against 47.8",
        "",
        "| label | champion AP | challenger AP | difference | positives |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| cat | 50.0 | 43.8 | -6.2 | 3 |",
        r"| a\|b | n/a | 100.0 | n/a | 0 |",
    ]


@pytest.mark.parametrize(
    ("promote", "proposes", "champion", "headline"),
    [
        (True, False, "v0001", "v0002 replaces v0001"),
        (True, False, None, "v0002 becomes the first champion"),
        (False, True, "v0001", "v0002 is proposed: `plmcl promote v0002` promotes it"),
        (False, False, None, "v0002 is refused"),
    ],
)
def test_headline(promote, proposes, champion, headline):
    decision = Decision(
        promote=promote,
        reasons=[],
        figures={},
        labels=[],
        champion=champion,
        challenger="v0002",
        proposes=proposes,
    )
    assert decision.headline == headline
