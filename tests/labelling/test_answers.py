import json

import pandas as pd
import pytest
from labelling.exported import annotation, export

from plmcl.errors import PlmclError
from plmcl.labelling.answers import labels_of, read_export, settle
from plmcl.labelling.decisions import read_decisions, write_decisions
from plmcl.labelling.label_studio import Question, tasks

NAMES = ["sea", "sand", 'say "a,b"']
IMAGES = ["a.jpg", "b.jpg"]


def asked(*questions):
    return tasks(questions, before="/p/", not_sure="not sure", model="m")


def name(image_id):
    return Question(image_id, image_id, "name")


def check(image_id, label):
    return Question(image_id, image_id, "check", label)


def decided(tmp_path, questions, annotations, names=NAMES):
    path = export(tmp_path / "export.json", asked(*questions), annotations)
    return settle(read_export(path, names, IMAGES))


def labels(found):
    return sorted(labels_of(found).itertuples(index=False, name=None))


def test_an_answer_is_kept_with_who_and_when(tmp_path):
    account = {"id": 3, "email": "ann@example.org", "first_name": ""}
    found = decided(
        tmp_path,
        [name("a.jpg"), check("b.jpg", "sea")],
        [
            [annotation("sand", who=account, when="2026-01-02T03:04:05.6Z", number=11)],
            [annotation("no", number=12)],
        ],
    )
    assert found.to_dict("records") == [
        {"image_id": "a.jpg", "ask": "name", "label": "sand", "answer": "present",
         "choice": "sand", "who": "ann@example.org", "when": "2026-01-02T03:04:05.6Z",
         "task": "1", "annotation": "11", "taken": "yes", "note": ""},
        {"image_id": "b.jpg", "ask": "check", "label": "sea", "answer": "absent",
         "choice": "no", "who": "7", "when": "2026-01-02T03:04:05Z",
         "task": "2", "annotation": "12", "taken": "yes", "note": ""},
    ]  # fmt: skip
    assert labels(found) == [("a.jpg", "sand", 1), ("b.jpg", "sea", 0)]


def test_not_sure_skipped_and_empty_answers_are_kept_and_give_no_label(tmp_path):
    found = decided(
        tmp_path,
        [name("a.jpg"), name("b.jpg"), check("a.jpg", "sea"), name("a.jpg")],
        [
            [annotation("not sure", who=1)],
            [annotation("sea", was_cancelled=True)],
            [annotation(None)],
            [],
        ],
    )
    assert found["answer"].tolist() == ["not sure", "skipped", "nothing"]
    assert labels(found) == []


def test_two_annotators_who_name_different_labels_are_both_right(tmp_path):
    found = decided(
        tmp_path, [name("a.jpg")],
        [[annotation("sea", who=1, number=1), annotation("sand", who=2, number=2),
          annotation("not sure", who=3, number=3)]],
    )  # fmt: skip
    assert labels(found) == [("a.jpg", "sand", 1), ("a.jpg", "sea", 1)]


def test_two_annotators_of_whom_one_says_yes_and_one_no_give_no_label(tmp_path):
    found = decided(
        tmp_path, [check("a.jpg", "sea"), check("b.jpg", "sea")],
        [[annotation("yes", who=1, number=1), annotation("no", who=2, number=2)],
         [annotation("yes", number=3)]],
    )  # fmt: skip
    assert labels(found) == [("b.jpg", "sea", 1)]
    assert found["note"].tolist() == ["said to show 'sea' and not to show it"] * 2 + [""]


def test_of_one_annotator_the_newest_answer_counts(tmp_path):
    found = decided(
        tmp_path, [name("a.jpg")],
        [[annotation("sea", number=1, when="2026-01-03T00:00:00Z"),
          annotation("sand", number=2, when="2026-01-02T00:00:00Z")]],
    )  # fmt: skip
    assert labels(found) == [("a.jpg", "sea", 1)]
    assert found["note"].tolist() == ["", "answered again: 2026-01-03T00:00:00Z"]


def test_without_a_name_everybody_is_somebody_else(tmp_path):
    found = decided(
        tmp_path, [name("a.jpg")],
        [[annotation("sea", who=None, number=1), annotation("sand", who=None, number=2)]],
    )  # fmt: skip
    assert len(labels(found)) == 2


def test_a_contradiction_ends_when_somebody_changes_an_answer(tmp_path):
    first = decided(
        tmp_path, [check("a.jpg", "sea")],
        [[annotation("yes", who=1, number=1), annotation("no", who=2, number=2)]],
    )  # fmt: skip
    path = export(
        tmp_path / "again.json", asked(check("a.jpg", "sea")),
        [[annotation("yes", who=1, number=1),
          annotation("yes", who=2, number=2, when="2026-02-02T00:00:00Z")]],
    )  # fmt: skip
    found = settle(pd.concat([first, read_export(path, NAMES, IMAGES)], ignore_index=True))
    assert labels(found) == [("a.jpg", "sea", 1)]
    assert found["taken"].tolist() == ["yes", "no", "yes"]


@pytest.mark.parametrize(
    ("question", "given", "note"),
    [
        (name("a.jpg"), annotation("see"), "'see' is none of the 3 labels; is 'sea' meant?"),
        (name("gone.jpg"), annotation("sea"), "there is no such image, or it cannot be used"),
        (check("a.jpg", "sea"), annotation("maybe"), "'maybe' is neither yes nor no"),
        (check("a.jpg", "cliff"), annotation("yes"), "'cliff' is none of the 3 labels"),
        (name("a.jpg"), annotation(None, result="x"), "an answer that is no choice"),
        (name("a.jpg"), annotation(None, result=[{"value": {"text": ["hi"]}}]),
         "an answer that is no choice"),
        (name("a.jpg"), annotation(None, result=[{"from_name": "answer",
         "value": {"choices": ["sea", "sand"]}}]), "2 choices, and one was asked for: 'sea; sand'"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_is_a_row_with_its_reason(tmp_path, question, given, note):
    (row,) = decided(tmp_path, [question], [[given]]).to_dict("records")
    assert (row["answer"], row["taken"], row["note"]) == ("refused", "no", note)


def test_a_task_of_somebody_else_among_ours_is_refused_and_the_others_are_taken(tmp_path):
    foreign = {"data": {"image": "s3://bucket/x.jpg"}}
    path = export(
        tmp_path / "e.json", [*asked(name("a.jpg")), foreign],
        [[annotation("sea")], [annotation("sea")]],
    )  # fmt: skip
    found = settle(read_export(path, NAMES, IMAGES))
    assert found["note"].tolist() == ["", "no task of plmcl suggest or plmcl audit"]
    assert labels(found) == [("a.jpg", "sea", 1)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "must be a list"),
        ("[1]", r"\[0\]: must be an object"),
        ('[{"image": "a.jpg", "answer": "sea"}]', "export as JSON, not as JSON-MIN"),
        ('[{"data": {"image": "a.jpg"}, "annotations": []}]', "none of its 1 tasks was made by"),
        ('[{"data": [], "annotations": []}]', "data: must be an object"),
        ('[{"data": {}, "annotations": {}}]', "annotations: must be a list"),
        ("[" * 100_000, "nested too deeply"),
        ("image,label\n", "not JSON"),
        ('[{"data": {"image_id": ["a"], "ask": 1, "not_sure": null}, "annotations": []}]',
         "none of its 1 tasks"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_export_of_ours_is_refused(tmp_path, text, words):
    path = tmp_path / "e.json"
    path.write_text(text)
    with pytest.raises(PlmclError, match=words):
        read_export(path, NAMES, IMAGES)


def test_answers_to_a_shorter_or_other_list_of_labels_are_taken_by_name_case_48(tmp_path):
    questions, given = [name("a.jpg")], [[annotation("sand")]]
    found = decided(tmp_path, questions, given, names=["cliff", "sea", "sand"])
    assert labels(found) == [("a.jpg", "sand", 1)]


def test_decisions_of_any_text_survive_the_file_case_42(tmp_path):
    odd = 'say "a,b"'
    found = decided(
        tmp_path,
        [name("a.jpg"), name("b.jpg")],
        [[annotation(odd, who="two\nlines, \r\n;")], [annotation("not sure", who="NA")]],
    )
    write_decisions(found, tmp_path / "d.csv")
    assert read_decisions(tmp_path / "d.csv").equals(found)


@pytest.mark.parametrize("text", ["half \ud800 of one", "zero \0 byte", "x" * 200_000])
def test_texts_that_no_file_holds_do_not_spoil_the_decisions(tmp_path, text):
    path = tmp_path / "e.json"
    (task,) = asked(name("a.jpg"))
    given = annotation(text, who=text, when=text)
    path.write_text(json.dumps([{"id": text, **task, "annotations": [given]}]))
    found = settle(read_export(path, NAMES, IMAGES))
    assert found["answer"].tolist() == ["refused"]
    write_decisions(found, tmp_path / "d.csv")
    assert read_decisions(tmp_path / "d.csv").equals(found)


@pytest.mark.parametrize("text", ["", "a,b\n", "image_id,ask\n1"])
def test_a_file_that_holds_no_decisions_is_refused(tmp_path, text):
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(PlmclError, match=r"d\.csv"):
        read_decisions(tmp_path / "d.csv")


def test_importing_the_same_export_again_changes_nothing(tmp_path):
    questions = [name("a.jpg"), check("b.jpg", "sea")]
    found = decided(tmp_path, questions, [[annotation("sea")], [annotation("no", number=2)]])
    again = read_export(tmp_path / "export.json", NAMES, IMAGES)
    assert settle(pd.concat([found, again], ignore_index=True)).equals(found)
    assert len(json.loads((tmp_path / "export.json").read_text())) == 2
