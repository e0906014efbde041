from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree

import pytest

from plmcl.data.sources import make_source
from plmcl.errors import PlmclError
from plmcl.labelling.label_studio import (
    Question,
    addresses,
    check_not_sure,
    configuration,
    tasks,
)

ODD = ['say "a,b"', "O'Brien & <co>", "NA", "007", "two\nlines", "tab\there", "größe ☂", "no;yes"]


def choices(xml):
    return [choice.get("value") for choice in ElementTree.fromstring(xml).iter("Choice")]


def test_label_names_of_any_kind_survive_the_configuration_in_their_order_case_42():
    assert choices(configuration("name", ODD, "not sure")) == [*ODD, "not sure"]


def test_one_answer_can_be_chosen_and_has_to_be():
    (element,) = ElementTree.fromstring(configuration("name", ["a"], "?")).iter("Choices")
    assert element.get("choice") == "single-radio"
    assert element.get("required") == "true"
    assert choices(configuration("check", ["a"], "?")) == ["yes", "no", "?"]


def test_every_label_of_the_list_can_be_chosen_also_without_an_image_case_15():
    names = ["sea", "never seen", "sand"]
    assert choices(configuration("name", names, "not sure"))[:3] == names


def test_a_stray_folder_among_the_tags_is_no_choice_case_16(tmp_path):
    for name in ("sea/a.jpg", "sand/b.jpg", "runs/events.txt", ".ipynb_checkpoints/a.jpg"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(name.encode())
    section = {
        "images": ".", "labels": None, "format": "auto", "label_names": None, "unlisted": "unknown",
        "minus_one": "refuse", "crowd": "keep", "difficult": "negative", "missing": 0.0,
    }  # fmt: skip
    found = make_source("folder", {"folder": section}).annotations(tmp_path)
    assert choices(configuration("name", found.label_names, "?")) == ["sand", "sea", "?"]


def test_a_label_that_xml_cannot_hold_is_refused_by_name():
    with pytest.raises(PlmclError, match=r"label 'be\\x07ll': .*XML"):
        configuration("name", ["be\x07ll"], "not sure")


@pytest.mark.parametrize("words", ["", "  ", "Not Sure", "YES"])
def test_words_for_not_sure_are_no_label(words):
    with pytest.raises(PlmclError, match="--not-sure"):
        check_not_sure(words, ["sea", "not sure"])


def test_an_address_leads_back_to_the_path():
    path = "a b/ü?#&%41.jpg"
    (task,) = tasks(
        [Question("x", path, "name")], before=addresses(Path("/srv/my photos"), None),
        not_sure="?", model="m",
    )  # fmt: skip
    address = urlsplit(task["data"]["image"])
    assert address.path == "/data/local-files/"
    assert parse_qs(address.query)["d"] == [f"my photos/{path}"]
    (task,) = tasks(
        [Question("x", path, "name")], before=addresses(Path("p"), "http://host:8080/photos"),
        not_sure="?", model="m",
    )  # fmt: skip
    assert unquote(urlsplit(task["data"]["image"]).path) == f"/photos/{path}"


def test_a_prediction_is_a_choice_with_its_score():
    question = Question("x", "x.jpg", "check", "sea", {"yes": 0.75})
    (task,) = tasks([question], before="", not_sure="?", model="sspl-40-ridge")
    assert task["data"]["question"] == "Does this photo show sea?"
    assert task["predictions"] == [
        {
            "model_version": "sspl-40-ridge",
            "score": 0.75,
            "result": [
                {
                    "from_name": "answer",
                    "to_name": "image",
                    "type": "choices",
                    "value": {"choices": ["yes"]},
                }
            ],
        }
    ]
