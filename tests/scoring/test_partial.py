import json
import resource

import pytest

from plmcl.errors import PlmclError
from plmcl.scoring.formats import json_line
from plmcl.scoring.inputs import Listed
from plmcl.scoring.partial import Answered, open_partial

IDENTITY = {"model": "ab", "batch_size": 2}
TAG = {"label": "a", "score": 0.5, "threshold": 0.5, "decision": True}
RECORDS = [
    {"file": 'q"\\ é\n{', "error": None, "labels": [TAG]},
    {"file": "b.jpg", "error": 'empty: "0" bytes', "labels": []},
    {"file": "c.jpg", "error": None, "labels": [TAG]},
    {"file": "d.jpg", "error": "empty: 0 bytes", "labels": []},
    {"file": "e.jpg", "error": None, "labels": []},
]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "tags.jsonl"


def begin(out):
    with open_partial(out) as partial:
        assert partial.begun(IDENTITY) is None
        partial.inputs.write_text("")
        partial.begin(IDENTITY, Listed(5, {"hidden": 1}))
        assert partial.answered(2) == Answered(0, 0)
        assert list(partial.append(RECORDS, 2)) == RECORDS
    return out.with_name("tags.jsonl.partial") / "answers.jsonl"


def test_whatever_a_kill_leaves_of_the_file_whole_batches_stay(out):
    answers = begin(out)
    whole = answers.read_bytes()
    assert whole == b"".join(map(json_line, RECORDS))
    ends = [0]
    for record in RECORDS:
        ends.append(ends[-1] + len(json_line(record)))
    errors = [0, 0, 1, 1, 2, 2]
    with open_partial(out) as partial:
        for length in range(len(whole) + 1):
            answers.write_bytes(whole[:length])
            lines = sum(end <= length for end in ends[1:])
            batch_size = length % 3 + 1
            kept = lines // batch_size * batch_size
            assert partial.answered(batch_size) == Answered(kept, errors[kept])
            assert answers.read_bytes() == whole[: ends[kept]]


@pytest.mark.parametrize("hole", [b"\0" * 40, b"\n", b"x\n", b"\0\n"])
def test_what_a_power_cut_leaves_in_the_middle_ends_what_is_kept(out, hole):
    answers = begin(out)
    lines = [json_line(record) for record in RECORDS]
    answers.write_bytes(b"".join([*lines[:3], hole, *lines[3:]]))
    with open_partial(out) as partial:
        assert partial.answered(1) == Answered(3, 1)
    assert answers.read_bytes() == b"".join(lines[:3])


def test_a_later_run_gets_what_the_first_one_listed(out):
    begin(out)
    with open_partial(out) as partial:
        assert partial.begun(IDENTITY) == Listed(5, {"hidden": 1})


def test_another_model_or_option_is_refused_by_name(out):
    begin(out)
    with open_partial(out) as partial, pytest.raises(PlmclError) as error:
        partial.begun(IDENTITY | {"model": "cd"})
    assert str(error.value) == (
        f"{out}.partial: begun with another model: 'ab', now 'cd'; go on with that one, or delete "
        "the folder"
    )


def test_a_damaged_record_and_a_folder_of_somebody_else_are_refused(out):
    begin(out)
    (out.with_name("tags.jsonl.partial") / "run.json").write_text("[]")
    with open_partial(out) as partial, pytest.raises(PlmclError, match=r"run\.json: damaged"):
        partial.begun(IDENTITY)
    other = out.with_name("x.csv.partial")
    other.mkdir()
    (other / "thesis.tex").touch()
    with (
        open_partial(out.with_name("x.csv")) as partial,
        pytest.raises(PlmclError, match=r"not a folder of plmcl predict: 'thesis\.tex'"),
    ):
        partial.begun(IDENTITY)
    out.with_name("y.csv.partial").touch()
    with pytest.raises(PlmclError, match="found a file"), open_partial(out.with_name("y.csv")):
        pass


def test_a_full_disk_names_the_folder_and_nothing_is_taken_for_whole(out):
    """A limit on a file's size stands for the disk: the kernel stops the write there."""
    answers = begin(out)
    before = answers.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        with pytest.raises(PlmclError) as error, open_partial(out) as partial:
            list(partial.append(RECORDS, 2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(error.value) == (
        f"{out}.partial: File too large; make room, and type the same command again: it goes on "
        "where it stopped"
    )
    assert not out.exists()
    assert len(answers.read_bytes()) == len(before) + 10  # a half line
    with open_partial(out) as partial:
        assert partial.answered(2) == Answered(4, 2)


def test_two_runs_do_not_write_one_file(out):
    with (
        open_partial(out),
        pytest.raises(PlmclError, match="another plmcl predict is at work"),
        open_partial(out),
    ):
        pass
    with open_partial(out):
        pass


def test_the_end_leaves_the_file_and_nothing_else(out, tmp_path):
    begin(out)
    out.write_text("older")
    with open_partial(out) as partial:
        partial.finish(out, "jsonl")
    assert list(tmp_path.iterdir()) == [out]
    assert [json.loads(line) for line in out.read_text().splitlines()] == RECORDS


def test_the_folder_of_the_file_is_made_unless_a_file_is_in_its_way(tmp_path):
    with open_partial(tmp_path / "some/where/tags.csv"):
        assert (tmp_path / "some/where/tags.csv.partial").is_dir()
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file/tags.csv", tmp_path / "file/below/tags.csv"):
        with (
            pytest.raises(PlmclError, match=f"{out.parent}: expected a folder, found a file"),
            open_partial(out),
        ):
            pass
