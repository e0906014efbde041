import pytest

from plmcl.data.formats import yolo
from plmcl.data.formats.base import ImageIndex, Options
from plmcl.errors import PlmclError

FILES = ["images/train/a.jpg", "images/train/b.jpg", "images/val/a.png"]


def write(root, texts):
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def read(root, texts, files=FILES):
    write(root, texts)
    return yolo.read(root, ImageIndex(files), Options())


def rows(found):
    return list(found.labels.itertuples(index=False, name=None))


def error(tmp_path, texts):
    with pytest.raises(PlmclError) as caught:
        read(tmp_path, {"classes.txt": "dog\ncat\n"} | texts)
    assert str(tmp_path) in str(caught.value)
    return str(caught.value)


BOX = "0.5 0.5 0.1 0.1"


def test_labels_are_the_classes_of_the_lines(tmp_path):
    found = read(
        tmp_path,
        {
            "data.yaml": "path: /home/me/set\nnames: {1: cat, 0: dog}\nnc: 2\n",
            "labels/train/a.txt": f"1 {BOX}\n0 {BOX}\n\n1 {BOX}\n",
            "labels/train/b.txt": "",
            "labels/val/a.txt": "0 0.1 0.1 0.2 0.1 0.2 0.2 0.1 0.2\r\n",  # a polygon
            "README.roboflow.txt": "exported on Sunday",
        },
    )
    assert found.label_names == ["dog", "cat"]
    assert rows(found) == [
        ("images/train/a.jpg", "cat", 1),
        ("images/train/a.jpg", "dog", 1),
        ("images/val/a.png", "dog", 1),
    ]
    assert found.named == set(FILES)  # also the image of the empty file
    assert (found.absent, found.unlisted) == ([], None)
    assert found.notes == {"text files outside the folders called labels": 1}
    assert sorted(str(path.relative_to(tmp_path)) for path in found.files) == [
        "data.yaml", "labels/train/a.txt", "labels/train/b.txt", "labels/val/a.txt",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("set/labels", ["train/a.jpg", "val/a.jpg"]),  # apart, each its own root
        ("set/labels", ["images/train/a.jpg", "images/val/a.jpg"]),
        ("set", ["images/train/a.jpg", "images/val/a.jpg"]),
        ("set", ["labels/train/a.jpg", "labels/val/a.jpg"]),  # beside
    ],
)
def test_images_lie_beside_or_apart(tmp_path, folder, files):
    (tmp_path / "set" / "labels").mkdir(parents=True)
    write(tmp_path / folder, {"classes.txt": "dog\ncat\n"})
    train, val = f"0 {BOX}", f"1 {BOX}"
    write(tmp_path / "set/labels", {"train/a.txt": train, "val/a.txt": val})
    found = yolo.read(tmp_path / folder, ImageIndex(files), Options())
    assert rows(found) == [(files[0], "dog", 1), (files[1], "cat", 1)]


def test_folders_of_images_and_labels_in_each_split(tmp_path):
    texts = {"data.yaml": "names: [dog]", "train/labels/a.txt": f"0 {BOX}", "val/labels/a.txt": ""}
    found = read(tmp_path, texts, ["train/images/a.jpg", "val/images/a.jpg"])
    assert rows(found) == [("train/images/a.jpg", "dog", 1)]
    assert found.named == {"train/images/a.jpg", "val/images/a.jpg"}


def test_the_classes_may_lie_one_folder_above(tmp_path):
    write(tmp_path, {"data.yaml": "names: [dog]", "labels/a.txt": f"0 {BOX}"})
    found = yolo.read(tmp_path / "labels", ImageIndex(["a.jpg"]), Options())
    assert rows(found) == [("a.jpg", "dog", 1)]
    assert found.files == [tmp_path / "data.yaml", tmp_path / "labels" / "a.txt"]


def test_names_stay_the_text_that_stands_there_case_21(tmp_path):
    """Case 21: YAML would make numbers, truth values and nothing of them."""
    names = ["007", "no", "1e3", "null", "~", "2020-01-01", "on", "NA", "a: b", "it's", 'q"']
    text = "names:\n" + "".join(f"  - {name}\n" for name in names[:-3])
    text += """  - 'a: b'\n  - "it's"\n  - 'q"'\n"""
    assert read(tmp_path, {"data.yaml": text, "a.txt": ""}, ["a.jpg"]).label_names == names


def test_images_that_are_not_there_are_listed(tmp_path):
    found = read(tmp_path, {"classes.txt": "dog", "x.txt": f"0 {BOX}", "a.txt": ""}, ["a.jpg"])
    assert (found.absent, found.named) == (["x.txt"], {"a.jpg"})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"2 {BOX}", "a.txt, line 2: the class must be a whole number from 0 to 1, found '2'"),
        (f"-1 {BOX}", "a whole number from 0 to 1, found '-1'"),
        (f"0.0 {BOX}", "a whole number from 0 to 1, found '0.0'"),
        (f"{'9' * 20} {BOX}", "a whole number from 0 to 1, found '999"),
        (f"cat {BOX}", "a.txt, line 2: must be class x y w h, all numbers, found 'cat 0.5"),
        ("0 0.5 0.5 0.1", "must be class x y w h"),
        ("0 0.5 0.5 0.1 nan", "must be class x y w h"),
        ("./images/a.jpg", "must be class x y w h"),
        ("\0", "must be class x y w h"),
    ],
)
def test_a_line_that_breaks_a_rule_is_refused_with_its_place(tmp_path, line, words):
    assert words in error(tmp_path, {"a.txt": f"0 {BOX}\n{line}\n"})


BOMB = "a: &a [x, x, x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\nnames: [*c, *c, *c]\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names: must be a list of classes"),
        ("names: dog", "names: must be a list of classes"),
        ("names: []", "names: must be a list of classes"),
        ("names: {}", "names: must be a list of classes"),
        ("names: {0: dog, 2: cat}", "numbered from 0 on, without a gap"),
        ("names: {dog: 0, cat: 1}", "numbered from 0 on, without a gap"),
        ("names: [dog, dog]", "name 2: 'dog' stands there twice"),
        ("names: [dog, '']", "name 2: a label must not be empty"),
        ("names: [dog, [cat]]", "name 2: must be a text, found a list"),
        ("names: [dog, cat]\nnc: 3", "nc is '3', but there are 2 names"),
        ("names: [dog", "not valid YAML"),
        ("names: [dog]\nnames: [cat]", "not valid YAML"),
        ("names: " + "[" * 10_000, "nested too deeply"),
        ("- " * 10_000, "not valid YAML"),
        ("names: &a [*a]", "name 1: must be a text, found null"),
        (BOMB, "name 1: must be a text, found a list"),
        ("names: [!!python/object/apply:os.getcwd []]", "name 1: must be a text, found a list"),
        ("x" * (1 << 20) + "x", "at most 1048576 are read"),
    ],
)
def test_a_list_of_classes_that_is_not_sound_is_refused(tmp_path, text, words):
    write(tmp_path, {"data.yaml": text, "a.txt": ""})
    with pytest.raises(PlmclError) as caught:
        yolo.read(tmp_path, ImageIndex(["a.jpg"]), Options())
    assert f"{tmp_path / 'data.yaml'}: " in str(caught.value)
    assert words in str(caught.value)


def test_two_lists_of_classes_must_be_equal(tmp_path):
    texts = {"classes.txt": "dog\ncat\n", "data.yaml": "names: [dog, cat]", "a.txt": ""}
    assert read(tmp_path, texts, ["a.jpg"]).label_names == ["dog", "cat"]
    with pytest.raises(PlmclError, match=r"data\.yaml: other classes than in .*classes\.txt"):
        read(tmp_path, {"data.yaml": "names: [cat, dog]"}, ["a.jpg"])


def test_what_is_no_such_folder_is_refused(tmp_path):
    folder = tmp_path / "set"
    write(folder, {"classes.txt": "dog"})
    with pytest.raises(PlmclError, match="no text file in it besides"):
        yolo.read(folder, ImageIndex(["a.jpg"]), Options())
    (folder / "classes.txt").rename(folder / "a.txt")
    with pytest.raises(PlmclError, match="no list of classes; put"):
        yolo.read(folder, ImageIndex(["a.jpg"]), Options())
    write(folder, {"classes.txt": "dog", "a.txt": "", "labels/a.txt": "", "labels/b/a.txt": ""})
    with pytest.raises(PlmclError, match=r"a\.txt: is about 'a.jpg', as .*a\.txt is"):
        yolo.read(folder, ImageIndex(["a.jpg"]), Options())
