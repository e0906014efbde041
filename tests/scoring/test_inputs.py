import io
import os
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import fsspec
import pytest

import plmcl.scoring.inputs
from plmcl.data.images import ImageProblem
from plmcl.errors import PlmclError
from plmcl.scoring.inputs import (
    Input,
    Listed,
    list_inputs,
    open_addresses,
    place_of,
    read_inputs,
    read_list,
    reader,
    sort_inputs,
)


def list_all(tmp_path, *arguments, stdin=b""):
    addresses = open_addresses(arguments)
    out = tmp_path / "inputs"
    listed = list_inputs(arguments, addresses, io.BytesIO(stdin), out)
    inputs = list(read_inputs(out))
    assert listed.total == len(inputs)
    return inputs, listed.passed_over


def names(inputs):
    return [item.name for item in inputs]


def test_a_folder_gives_its_images_sorted_and_counts_the_rest(photos, tmp_path):
    inputs, passed_over = list_all(tmp_path, str(photos))
    assert names(inputs) == sorted(str(p) for p in photos.rglob("[!.]*.[pj]*g"))
    assert len(inputs) == 25
    assert passed_over == {"hidden": 1, "suffix .txt": 1}


def test_arguments_keep_their_order_and_names_are_as_the_user_says(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(photos)
    inputs, _ = list_all(tmp_path, "b/broken.jpg", "c", "notes.txt", "a/0*.png", "absent.jpg")
    assert names(inputs) == [
        "b/broken.jpg", "c/00.png", "c/03.png", "c/06.png", "c/09.png", "c/12.png", "c/15.png",
        "c/18.png", "c/21.png", "notes.txt", "a/02.png", "a/05.png", "a/08.png", "absent.jpg",
    ]  # fmt: skip
    assert {item.path for item in inputs} == {str(photos / item.name) for item in inputs}
    assert place_of("c") == str(photos / "c")


def test_a_pattern_goes_no_deeper_than_it_says(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(photos)
    assert names(list_all(tmp_path, "**/*1.png")[0]) == ["a/11.png", "b/01.png", "c/21.png"]
    assert names(list_all(tmp_path, "*/*.jpg")[0]) == ["b/broken.jpg"]
    (missing,), _ = list_all(tmp_path, "*.gif")
    assert missing.error == "no images in *.gif; passed over: nothing"
    (notes,), _ = list_all(tmp_path, "n*")
    assert notes.error == "no images in n*; passed over: 1 x suffix .txt"


def test_a_file_whose_name_looks_like_a_pattern_is_the_file(tmp_path):
    (tmp_path / "[a].png").touch()
    (tmp_path / "a.png").touch()
    assert names(list_all(tmp_path, f"{tmp_path}/[a].png")[0]) == [f"{tmp_path}/[a].png"]


def test_a_link_to_itself_ends_and_none_leads_out(photos, tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "loop").symlink_to(inside)
    (inside / "out.png").symlink_to(photos / "c/00.png")
    (inside / "in.png").touch()
    inputs, passed_over = list_all(tmp_path, f"{inside}/**/*")
    assert names(inputs) == [f"{inside}/in.png"]
    assert passed_over == {"a link that leads out of the folder": 1, "a link to a folder": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"a.jpg\nb.jpg\n", ["a.jpg", "b.jpg"]),
        (b"a.jpg\r\n\n b .jpg", ["a.jpg", " b .jpg"]),
        (b"a\nb.jpg\0c\r.jpg\0", ["a\nb.jpg", "c\r.jpg"]),
        (b"a.jpg\0b\n.jpg", ["a.jpg", "b\n.jpg"]),
        (b"caf\xe9.jpg\n", ["caf\udce9.jpg"]),
    ],
)
def test_lists_end_their_names_by_lines_or_by_zero_bytes(text, expected):
    assert list(read_list(io.BytesIO(text))) == expected


def test_a_long_list_is_the_same_however_its_blocks_fall(monkeypatch):
    text = b"".join(b"%d.jpg\n" % i for i in range(50))
    for block in range(1, 20):
        monkeypatch.setattr(plmcl.scoring.inputs, "_BLOCK", block)
        assert list(read_list(io.BytesIO(text))) == [f"{i}.jpg" for i in range(50)]


def test_what_is_no_list_is_refused_before_it_fills_the_memory():
    endless = io.BytesIO(b"x" * 2**20)
    with pytest.raises(PlmclError, match="standard input is no list of files"):
        list(read_list(endless))
    assert endless.tell() < 2**18


def test_a_list_names_files_and_never_an_address_a_folder_or_a_pattern(photos, tmp_path):
    lines = f"memory://there.png\n{photos}\n{photos}/*/*.png\nfile:///etc/passwd\n-\n"
    inputs, _ = list_all(tmp_path, "-", stdin=lines.encode())
    assert names(inputs) == lines.splitlines()
    assert [item.address for item in inputs] == [None] * 5
    for item in inputs:
        assert not reader(item, {})().is_file()


def test_sorting_on_disk_gives_what_sorting_in_memory_gives(tmp_path, monkeypatch):
    texts = ["b\nb", "é", "a", "Z", "\udce9", "a/b", "a b", "a"]
    inputs = [Input(text, f"/{number}") for number, text in enumerate(texts)]
    expected = sorted(inputs, key=lambda item: item.name)
    for at_once in (1, 2, 3, 8, 9):
        monkeypatch.setattr(plmcl.scoring.inputs, "SORTED_AT_ONCE", at_once)
        assert list(sort_inputs(inputs, tmp_path)) == expected
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------- addresses


@pytest.fixture
def store(photos):
    """The photos in a store that fsspec keeps in memory."""
    files = fsspec.filesystem("memory")
    files.put(str(photos), "/bucket/photos", recursive=True)
    yield files
    files.rm("/", recursive=True)


def test_an_address_is_a_folder_a_file_or_a_pattern(store, photos, tmp_path):
    root = "bucket/photos"
    inputs, passed_over = list_all(tmp_path, f"memory://{root}")
    assert len(inputs) == 25
    assert names(inputs)[0] == f"memory://{root}/a/02.png"
    assert passed_over == {"hidden": 1, "suffix .txt": 1}
    addresses = open_addresses([f"memory://{root}"])
    assert reader(inputs[0], addresses)() == (photos / "a/02.png").read_bytes()

    inputs, _ = list_all(tmp_path, f"memory://{root}/b/broken.jpg", f"memory://{root}/**/*1.png")
    assert [name.rpartition(root)[2] for name in names(inputs)] == [
        "/b/broken.jpg", "/a/11.png", "/b/01.png", "/c/21.png",
    ]  # fmt: skip
    assert [item.address for item in inputs] == [0, 1, 1, 1]
    (missing,), _ = list_all(tmp_path, "memory://absent/x")
    assert missing.error == "memory://absent/x: not found"


def test_the_version_of_a_files_content_changes_with_it(store, tmp_path):
    store.pipe("/v/a.png", b"1")
    ((before,), _) = list_all(tmp_path, "memory://v")
    store.pipe("/v/a.png", b"12")
    ((after,), _) = list_all(tmp_path, "memory://v")
    assert before.version != after.version


def test_an_address_of_this_machine_is_read_as_a_path(photos, tmp_path):
    inputs, passed_over = list_all(tmp_path, f"file://{photos}")
    assert (len(inputs), sum(passed_over.values())) == (25, 2)
    assert inputs[0].name == str(photos / "a/02.png")


def test_an_address_of_the_web_is_one_file_and_its_links_are_not_followed(photos, tmp_path):
    pytest.importorskip("aiohttp")
    asked = []

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(photos))

        def log_message(self, *_):
            asked.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}"
        urls = [f"{root}/a/02.png?key=secret", f"{root}/a", f"{root}/a/99.png"]
        inputs, _ = list_all(tmp_path, *urls)
        assert names(inputs) == [f"{root}/a/02.png", f"{root}/a", f"{root}/a/99.png"]
        assert "secret" not in (tmp_path / "inputs").read_text()
        addresses = open_addresses(urls)
        assert reader(inputs[0], addresses)() == (photos / "a/02.png").read_bytes()
        assert b"<html" in reader(inputs[1], addresses)()  # which is no image
        with pytest.raises(ImageProblem, match="No such file"):
            reader(inputs[2], addresses)()
        server.shutdown()
    assert set(asked) <= {"/a/02.png?key=secret", "/a", "/a/", "/a/99.png"}


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("nothing://x", "addresses that begin with nothing:// cannot be read here"),
        ("simplecache::memory://x", "chained addresses"),
        ("s3://name:secret@bucket/x", "addresses that begin with s3:// cannot be read here: inst"),
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_its_secrets(url, rule):
    if url.startswith("s3"):
        try:
            import s3fs  # noqa: F401
        except ImportError:
            pass
        else:
            pytest.skip("s3fs is installed")
    with pytest.raises(PlmclError, match=rule) as error:
        open_addresses([url])
    assert "secret" not in str(error.value)


def test_fsspec_is_loaded_only_for_an_address(photos):
    code = (
        "import sys, plmcl.scoring.predict, plmcl.scoring.inputs as i;"
        f"i.open_addresses([{str(photos)!r}, '-']);"
        "heavy = {'fsspec', 'pandas', 'torch', 'pyarrow', 'ray', 'pydantic'};"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"


def test_memory_does_not_grow_with_the_number_of_inputs(tmp_path, monkeypatch):
    import tracemalloc

    monkeypatch.setattr(plmcl.scoring.inputs, "SORTED_AT_ONCE", 500)

    def peak(count):
        text = io.BytesIO(b"".join(b"%d.jpg\n" % i for i in range(count)))
        tracemalloc.start()
        listed = list_inputs(["-"], {}, text, tmp_path / "inputs")
        inputs = (item._replace(name=item.name[::-1]) for item in read_inputs(tmp_path / "inputs"))
        assert listed == Listed(count, {})
        assert sum(1 for _ in sort_inputs(inputs, tmp_path)) == count
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(4_000) - peak(2_000) < 300_000  # 4 files more, with their buffers
