import fsspec
import pyarrow.parquet as pq
import pytest

from plmcl.errors import PlmclError
from plmcl.inference import tag_files, to_record
from plmcl.scoring import addresses as addresses_module
from plmcl.scoring.addresses import Address
from plmcl.scoring.inputs import Input
from plmcl.scoring.shards import Done, Output, Scoring, cut, with_version

SCORING = Scoring("ab" * 32, 4, "cpu")
MANY = [Input(f"{number:05}.jpg", f"/p/{number:05}.jpg", version="1") for number in range(2000)]


@pytest.fixture
def inputs(photos):
    paths = sorted(str(path) for path in photos.rglob("[!.]*.[pj]*g"))
    return [with_version(Input(path, path)) for path in paths]


def test_every_input_is_in_one_shard_once_and_in_order():
    shards = list(cut(MANY, 50))
    assert [item for shard in shards for item in shard] == MANY
    assert max(map(len, shards)) <= 200
    assert 25 <= len(shards) <= 55  # 40 on average
    assert list(cut([], 50)) == []
    assert [len(shard) for shard in cut(MANY[:9], 1)] == [1] * 9


def test_an_input_more_or_another_content_changes_one_shard():
    before = {SCORING.shard_name(shard) for shard in cut(MANY, 50)}
    more = sorted([*MANY, Input("00777x.jpg", "/p/00777x.jpg")])
    assert len({SCORING.shard_name(shard) for shard in cut(more, 50)} - before) <= 2
    other = [*MANY[:9], MANY[9]._replace(version="2"), *MANY[10:]]
    assert len({SCORING.shard_name(shard) for shard in cut(other, 50)} - before) == 1


def test_the_name_of_a_shard_stands_for_all_that_decides_on_it(tmp_path):
    shard = MANY[:3]
    names = {
        SCORING.shard_name(shard),
        SCORING.shard_name(shard[:2]),
        SCORING.shard_name([*shard[:2], shard[2]._replace(error="gone")]),
        Scoring("cd" * 32, 4, "cpu").shard_name(shard),
        Scoring("ab" * 32, 8, "cpu").shard_name(shard),
        Scoring("ab" * 32, 4, "gpu").shard_name(shard),
    }
    assert len(names) == 6
    # Not where this machine has it.
    assert SCORING.shard_name([item._replace(path="/q") for item in shard]) in names
    path = tmp_path / "a.png"
    path.write_bytes(b"1")
    item = with_version(Input("a.png", str(path)))
    path.write_bytes(b"12")
    assert with_version(item).version != item.version
    assert with_version(Input("gone", f"{tmp_path}/gone")).version == ""


def test_a_shard_has_what_predict_says_and_is_not_written_twice(tagger, photos, inputs, tmp_path):
    output = Output(str(tmp_path))
    done = output.score(tagger, SCORING, inputs, {}, threads=2)
    assert done == Done(SCORING.shard_name(inputs), 25, 1)
    (path,) = (tmp_path / "shards").iterdir()
    assert path.name == f"{done.name}.parquet"
    rows = pq.read_table(path).select(["file", "error"]).to_pylist()
    expected = tag_files(tagger, [item.path for item in inputs], batch_size=4)
    records = [to_record(prediction) for prediction in expected]
    assert rows == [{"file": r["file"], "error": r["error"]} for r in records]

    written = path.stat()
    assert output.score(None, SCORING, inputs, {}, threads=2) == done
    assert path.stat().st_ino == written.st_ino
    whole = path.read_bytes()
    for damaged in (b"", whole[:-9]):
        path.write_bytes(damaged)
        assert output.score(tagger, SCORING, inputs, {}, threads=1) == done
        assert path.read_bytes() == whole
    assert len(list((tmp_path / "shards").iterdir())) == 1


def test_a_shard_that_lacks_what_could_not_be_reached_is_written_again(
    tagger, photos, tmp_path, monkeypatch
):
    files = fsspec.filesystem("memory")
    files.pipe("/u/a.png", (photos / "a/02.png").read_bytes())
    monkeypatch.setattr(addresses_module, "SECONDS_BETWEEN_TRIES", 0)
    output = Output("memory://scores")
    address = Address("memory://u")
    item = Input("memory://u/a.png", "/u/a.png", 0)

    tries = []

    def fail(path, mode):
        tries.append(path)
        raise ConnectionResetError(104, "Connection reset by peer", "https://key:secret@there")

    try:
        with monkeypatch.context() as patch:
            patch.setattr(address._files, "open", fail, raising=False)
            assert output.score(tagger, SCORING, [item], {0: address}, threads=1).errors == 1
        assert tries == ["/u/a.png"] * 3
        name = SCORING.shard_name([item])
        with files.open(f"/scores/shards/{name}.parquet") as file:
            (row,) = pq.read_table(file).to_pylist()
        assert row["error"] == "unreachable: ConnectionResetError: Connection reset by peer"
        assert output.done(name, 1) is None
        assert output.score(tagger, SCORING, [item], {0: address}, threads=1).errors == 0
        assert output.done(name, 1) == Done(name, 1, 0)
    finally:
        files.rm("/", recursive=True)


def test_a_shard_over_which_workers_die_again_and_again_is_given_up(tagger, inputs, tmp_path):
    output = Output(str(tmp_path))
    name = SCORING.shard_name(inputs)
    (tmp_path / "shards").mkdir()
    for number in range(3):
        (tmp_path / f"shards/{name}.parquet.{number}.tmp").touch()
    unfinished = tmp_path / f"shards/{name}.parquet.3.tmp"
    unfinished.touch()
    with pytest.raises(PlmclError, match=r"begun 4 times and never finished; an image from /"):
        output.score(tagger, SCORING, inputs, {}, threads=1)
    unfinished.unlink()
    assert output.score(tagger, SCORING, inputs, {}, threads=1).name == name


def test_the_index_lists_all_and_removes_what_the_last_one_listed(tmp_path):
    output = Output(str(tmp_path))
    folder = tmp_path / "shards"

    def put(name):
        output.write(f"shards/{name}.parquet", lambda file: file.write(b"x"))

    for name in ("aa", "bb", "of another run"):
        put(name)
    output.write_index([("aa", MANY[:2]), ("bb", [Input("caf\udce9", "/x")])])
    assert pq.read_table(tmp_path / "index.parquet").to_pylist() == [
        {"file": "00000.jpg", "shard": "shards/aa.parquet", "row": 0},
        {"file": "00001.jpg", "shard": "shards/aa.parquet", "row": 1},
        {"file": "caf\\udce9", "shard": "shards/bb.parquet", "row": 0},
    ]
    (folder / "aa.parquet.0123.tmp").touch()
    (folder / "zz.parquet.0123.tmp").touch()
    put("cc")
    output.write_index([("cc", MANY[2:3]), ("aa", MANY[:2])])
    assert output.listed() == {"aa", "cc"}
    assert sorted(path.name for path in folder.iterdir()) == [
        "aa.parquet", "cc.parquet", "of another run.parquet", "zz.parquet.0123.tmp",
    ]  # fmt: skip


def test_a_file_that_cannot_be_written_whole_is_not_there(tmp_path):
    output = Output(str(tmp_path))

    def write(file):
        file.write(b"x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        output.write("shards/aa.parquet", write)
    assert output.shards() == set()
    assert list((tmp_path / "shards").iterdir()) == []


def test_an_output_of_an_unknown_kind_is_refused():
    with pytest.raises(PlmclError, match="--out: addresses with nothing:// cannot be written here"):
        Output("nothing://x")
