from datetime import UTC, datetime

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile

from plmcl.retraining.places import Address, open_place, without_secrets


class Listing(fsspec.AbstractFileSystem):
    """A file system of which only the listing is there."""

    def __init__(self, infos):
        super().__init__(skip_instance_cache=True)
        self.infos = infos

    def find(self, path, detail=False, **more):
        return self.infos


def found(infos):
    return Address(Listing({f"b/{name}": info for name, info in infos.items()}), "b", "b").find()


def test_a_version_is_the_etag_or_else_size_and_time():
    time = datetime(2024, 1, 1, tzinfo=UTC)
    files = found(
        {
            "etag.jpg": {"size": 3, "ETag": '"abc"', "LastModified": time},
            "gcs.jpg": {"size": 3, "updated": "2024-01-01T00:00:00Z"},
            "http.jpg": {"size": None},
            "time.jpg": {"size": 3, "mtime": 17.5},
        }
    ).files
    assert list(files["version"]) == ["abc", "3-2024-01-01T00:00:00Z", "None-", "3-17.5"]
    expected = [1704067200.0, 1704067200.0, pytest.approx(float("nan"), nan_ok=True), 17.5]
    assert list(files["changed"]) == expected


def test_names_that_no_file_of_a_folder_can_have_are_passed_over():
    names = ["a//b.jpg", "./here.jpg", "n\0.jpg", "a.jpg", "a.jpg/below.jpg", "l" * 260 + ".jpg"]
    listing = found({name: {"size": 1} for name in names} | {"big.jpg": {"size": 10**10}})
    assert list(listing.files["name"]) == ["a.jpg/below.jpg"]
    assert [(file.path[:10], file.status) for file in listing.passed_over] == [
        ("./here.jpg", "unreadable_name"),
        ("a.jpg", "unreadable_name"),
        ("a//b.jpg", "unreadable_name"),
        ("big.jpg", "too_large"),
        ("l" * 10, "unreadable_name"),
        ("n\0.jpg", "unreadable_name"),
    ]


def test_an_address_and_a_folder_pass_over_the_same(tmp_path):
    names = ["a.jpg", ".b.jpg", "._c.jpg", "__MACOSX/d.jpg", "x/.y/e.jpg", "f.txt", "g", "h.HEIC"]
    names += ["labels.csv", "x/labels.csv", "K.JPEG"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    folder = open_place(str(tmp_path)).find()
    address = found({name: {"size": 1} for name in names})
    assert list(folder.files["name"]) == list(address.files["name"]) == ["K.JPEG", "a.jpg"]
    assert [file[:2] for file in folder.passed_over] == [file[:2] for file in address.passed_over]
    assert folder.tag_file is not None


def test_a_folder_below_an_address_is_listed_from_there():
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    for path in ("/bucket/in/a.jpg", "/bucket/in/b/c.jpg", "/bucket/inside.jpg"):
        memory.store[path] = MemoryFile(memory, path, b"x")
    place = open_place("memory://bucket/in/")
    assert list(place.find().files["name"]) == ["a.jpg", "b/c.jpg"]
    memory.store.clear()


def test_a_local_address_follows_links_to_its_own_files_only_case_84(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jpg").write_bytes(b"a")
    (tmp_path / "out.jpg").write_bytes(b"b")
    (tmp_path / "in/link.jpg").symlink_to("a.jpg")
    (tmp_path / "in/out.jpg").symlink_to(tmp_path / "out.jpg")
    place = open_place(f"file://{tmp_path}/in")
    assert place.source is None
    assert list(place.find().files["name"]) == ["a.jpg", "link.jpg"]
    assert place.fetch(["a.jpg", "x/gone.jpg"], tmp_path / "to") == [True, False]
    assert [path.name for path in (tmp_path / "to").rglob("*.jpg")] == ["a.jpg"]


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("s3://bucket/x", "s3://bucket/x"),
        ("ftp://me:pass@host:21/x", "ftp://host:21/x"),
        ("https://host/x?sig=abc", "https://host/x"),
        ("az://a@b/c", "az://b/c"),
    ],
)
def test_credentials_are_not_shown(address, shown):
    assert without_secrets(address) == shown
