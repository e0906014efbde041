"""Tests of the label settings: against loops over plain dicts, and what must not change them."""

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tables import manifest

from plmcl import schemas
from plmcl.errors import PlmclError
from plmcl.labels.settings import Setting, describe, make_draws, observe

NAMES = ["NA", "None", "null", "no", "007", "1e3", "a,b", 'say "x"', "two\nlines", "😀", "\uffff"]
SETTINGS = ["ffl", "fspl", "given", "fpl-30", "fpl-100", "sfl-40", "sspl-40", "sspl-100"]
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)


def key(seed, purpose, text):
    digest = hashlib.sha256(f"{seed}|{purpose}|{text}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


@dataclass
class World:
    """A truth as a plain dict, and the tables made of it."""

    truth: dict[tuple[str, str], int]  # explicit entries
    base: list[str]
    later: list[str]
    held_out: list[str]
    unlisted: str = "negative"
    seed: int = 0

    @cached_property
    def manifest(self):
        ids = [*self.base, *self.held_out, *self.later]
        later = [i in self.later for i in ids]
        return manifest(ids, self.truth, NAMES, self.unlisted, delivery=later)

    @cached_property
    def splits(self):
        split = {i: "test" if i in self.held_out else "train" for i in self.base + self.later}
        split |= dict.fromkeys(self.held_out, "test")
        return pd.DataFrame({"image_id": list(split), "split": list(split.values())}, dtype="str")

    @cached_property
    def draws(self):
        return make_draws(self.manifest, self.base, seed=self.seed, draw="hash")

    def observe(self, name):
        tables = {"truth": self.manifest, "splits": self.splits, "draws": self.draws}
        return observe(Setting.parse(name), **tables, seed=self.seed)

    def observe_or_nothing(self, name):
        """Without any observed label, an empty table instead of the refusal."""
        try:
            return self.observe(name)
        except PlmclError as refusal:
            if "no label would be observed" not in str(refusal):
                raise
            return self.manifest.labels[:0]

    def value(self, image_id, label):
        """1, 0, or None for unknown: what is not listed of an image that came later always is."""
        closed = self.unlisted == "negative" and image_id not in self.later
        return self.truth.get((image_id, label), 0 if closed else None)

    def expected(self, name):
        """The observed entries, worked out entry by entry."""
        kind, _, percent = name.partition("-")
        p = Fraction(int(percent or 100), 100)
        turns = sorted(self.base, key=lambda i: key(self.seed, "turn", i))
        chosen = turns[: round(p * len(self.base))] if kind in ("sspl", "sfl") else turns
        entries = {}
        for i in chosen:
            positives = [label for label in NAMES if self.value(i, label) == 1]
            if kind in ("fspl", "sspl"):
                if positives:
                    drawn = min(positives, key=lambda n: key(self.seed, "positive", f"{i}|{n}"))
                    entries[i, drawn] = 1
                continue
            for label in NAMES:
                kept = Fraction(key(self.seed, "fpl", f"{i}|{label}"), 2**64) < p
                if self.value(i, label) is not None and (kept or kind != "fpl"):
                    entries[i, label] = self.value(i, label)
        if kind == "given":
            entries |= {cell: v for cell, v in self.truth.items() if cell[0] in self.later}
        return dict(sorted(entries.items()))


@st.composite
def worlds(draw, unlisted="negative"):
    ids = draw(st.lists(texts, min_size=6, max_size=16, unique=True))
    cells = st.tuples(st.sampled_from(ids), st.sampled_from(NAMES))
    truth = draw(st.dictionaries(cells, st.integers(0, 1), max_size=60))
    if unlisted == "unknown":
        truth[ids[5], "no"] = 0  # one known negative at least
    truth[ids[5], "NA"] = 1
    return World(truth, ids[3:], ids[:1], ids[1:3], unlisted, draw(st.integers(0, 2)))


def entries(frame):
    return {(i, label): value for i, label, value in frame.itertuples(index=False, name=None)}


def positives(frame):
    return set(entries(frame[frame["value"] == 1]))


# ---------------------------------------------------------------------------------- names


@pytest.mark.parametrize("name", [*SETTINGS, "fpl-1", "sfl-99", "sspl-5"])
def test_a_name_is_read_and_written_back(name):
    assert str(Setting.parse(name)) == name


def test_a_setting_without_a_share_has_all():
    assert Setting.parse("ffl") == Setting("ffl", 100)
    assert Setting.parse("sspl-40") == Setting("sspl", 40)


@pytest.mark.parametrize(
    "name",
    ["", "sspl", "sspl-0", "sspl-101", "sspl-040", "ffl-100", "SSPL-40", "sspl-40\n", "sspl-٤"],
)
def test_another_name_is_refused(name):
    with pytest.raises(PlmclError, match="expected ffl, fspl, given, or"):
        Setting.parse(name)


@pytest.mark.parametrize(
    ("name", "num_images", "count"),
    [
        ("sspl-60", 82_081, 49_249),  # the paper's 49.2k of COCO
        ("sspl-50", 5, 2),  # round() goes to the even number
        ("sspl-50", 7, 4),
        ("sspl-7", 150, 10),  # 10.5; in floats .07 * 150 is above it
        ("sfl-1", 30, 0),
        ("sspl-100", 9, 9),
        ("fpl-30", 9, 9),
        ("fspl", 9, 9),
    ],
)
def test_the_number_of_labeled_images(name, num_images, count):
    assert Setting.parse(name).num_labeled(num_images) == count


# ---------------------------------------------------------------------------------- draws


def test_the_draw_worked_out_by_hand():
    truth = {("a", "cat"): 1, ("a", "dog"): 1, ("a", "elk"): 0, ("c", "cat"): 1, ("z", "cat"): 1}
    world = World(truth, ["a", "b", "c", "z"], [], []).manifest
    draws = make_draws(world, ["c", "a", "b"], seed=5, draw="hash")
    cat_first = key(5, "positive", "a|cat") < key(5, "positive", "a|dog")
    assert draws["image_id"].tolist() == ["a", "b", "c"]
    assert draws["label"].tolist() == ["cat" if cat_first else "dog", "", "cat"]
    turns = sorted("abc", key=lambda i: hashlib.sha256(f"5|turn|{i}".encode()).hexdigest())
    assert draws["draw_rank"].tolist() == [turns.index(i) for i in "abc"]


def test_a_negative_on_an_image_that_is_not_trained_on_does_not_count():
    """It lies on an image that cannot be used, or is held out: training knows no negative."""
    truth = {("a", "cat"): 1, ("b", "dog"): 1, ("z", "cat"): 0}
    world = World(truth, ["a", "b"], [], ["z"], unlisted="unknown")
    with pytest.raises(PlmclError, match="needs known negatives"):
        world.observe("ffl")


def test_coles_draw_shuffles_positives_and_negatives_along_the_published_list():
    """Against a second telling of the reference's rule, with lists instead of arrays."""
    ids = [f"{i}.jpg" for i in range(12)]
    shown = {i: [n for n in NAMES if (int(i[:-4]) + len(n)) % 3 != 1] for i in ids}
    shown["5.jpg"] = []  # an empty row moves the stream as well
    world = manifest(
        [*ids, "t.jpg"],
        {(i, name): 1 for i in ids for name in shown[i]},
        NAMES,
        split=["train"] * 12 + ["test"],
        published=[*range(12), 0],
    )
    stream = np.random.RandomState(1200)
    expected = {}
    for i in ids:
        present = np.array([k for k, name in enumerate(NAMES) if name in shown[i]], dtype=int)
        absent = np.array([k for k, name in enumerate(NAMES) if name not in shown[i]], dtype=int)
        stream.shuffle(present)
        stream.shuffle(absent)
        expected[i] = NAMES[present[0]] if len(present) else ""
    assert len(set(expected.values())) > 3
    train = [i for i in ids if i not in ("3.jpg", "7.jpg")]  # two are held out, and were drawn
    draws = make_draws(world, train, seed=0, draw="cole")
    assert dict(zip(draws["image_id"], draws["label"], strict=True)) == {
        i: expected[i] for i in train
    }


def test_an_image_without_a_positive_has_a_turn_and_no_label():
    """Case 28: it can never be labeled, and it is counted."""
    truth = {("a", "NA"): 1, ("b", "NA"): 1, ("c", "no"): 0}
    world = World(truth, ["a", "b", "c", "d"], [], [])
    assert world.draws["label"].tolist() == ["NA", "NA", "", ""]
    assert sorted(world.draws["draw_rank"]) == [0, 1, 2, 3]
    assert entries(world.observe("sspl-100")) == {("a", "NA"): 1, ("b", "NA"): 1}
    counts = describe(world.observe("fspl"), world.draws, world.splits, Setting.parse("fspl"))
    assert counts["images without a positive"] == 2
    assert counts["labeled images"] == 2


# ---------------------------------------------------------------------------------- observe


some = settings(max_examples=25, deadline=None)
names = st.sampled_from(SETTINGS)


@given(names, worlds())
@settings(max_examples=60, deadline=None)
def test_with_complete_labels_it_is_the_loop_over_entries(name, world):
    """Cases 18 and 21: any text is a label."""
    check(world, name)


@given(names, worlds("unknown"))
@settings(max_examples=60, deadline=None)
def test_with_unknown_entries_only_known_ones_are_observed(name, world):
    """Cases 33 and 34."""
    assume(any(v == 0 and i in world.base for (i, _), v in world.truth.items()))
    check(world, name)


def check(world, name):
    found = world.observe_or_nothing(name)
    assert list(entries(found).items()) == list(world.expected(name).items())  # the order, too
    assert found.dtypes.to_dict() == {"image_id": "str", "label": "str", "value": np.int8}
    assert found.index.equals(pd.RangeIndex(len(found)))


@given(worlds())
@some
def test_single_positives_are_nested(world):
    seen = set()
    for percent in (20, 60, 100):
        now = positives(world.observe_or_nothing(f"sspl-{percent}"))
        assert seen <= now
        seen = now
    assert seen == positives(world.observe_or_nothing("fspl"))


@given(worlds())
@some
def test_the_images_of_sfl_are_those_of_sspl_that_have_a_turn(world):
    draws = world.draws
    turn = draws["draw_rank"] < round(Fraction(60, 100) * len(draws))
    full, single = world.observe("sfl-60"), world.observe_or_nothing("sspl-60")
    assert set(full["image_id"]) == set(draws["image_id"][turn])
    assert set(single["image_id"]) == set(draws["image_id"][turn & (draws["label"] != "")])
    assert positives(single) <= positives(full)


@given(worlds())
@some
def test_all_of_the_labels_is_ordinary_full_supervision(world):
    """Case 39: known proportion 1.0 equals full labels."""
    full = world.observe("ffl")
    assert len(full) == len(world.base) * len(NAMES)
    pd.testing.assert_frame_equal(world.observe("fpl-100"), full)
    pd.testing.assert_frame_equal(world.observe("sfl-100"), full)


def test_a_setting_counts_images_or_entries_as_its_name_says_case_44():
    ids = [f"{i:03}" for i in range(200)]
    world = World({(i, "no"): 1 for i in ids} | {(i, "NA"): 1 for i in ids}, ids, [], [])
    known = {name: entries(world.observe(name)) for name in ("sspl-20", "sfl-20", "fpl-20")}
    images = {name: len({i for i, _ in cells}) for name, cells in known.items()}
    assert images["sspl-20"] == images["sfl-20"] == 40  # 20 % of the images
    assert len(known["sspl-20"]) == 40  # each shows one entry
    assert len(known["sfl-20"]) == 40 * len(NAMES)  # each shows all
    # 20 % of the entries, whatever their image: one shows none of 11 with a chance of 9 %.
    assert abs(len(known["fpl-20"]) / (200 * len(NAMES)) - 0.2) < 0.04
    assert images["fpl-20"] > 150


def test_fpl_keeps_each_entry_with_its_probability():
    world = World({("0", "no"): 1}, [f"{i}" for i in range(400)], [], [])
    for percent in (10, 50, 90):
        share = len(world.observe(f"fpl-{percent}")) / (400 * len(NAMES))
        assert abs(share - percent / 100) < 0.03  # 4 standard deviations at 50 %


@given(names, worlds())
@some
def test_an_image_that_arrives_later_changes_no_earlier_row(name, world):
    truth = {cell: value for cell, value in world.truth.items() if cell[0] not in world.later}
    before = World(truth, world.base, [], world.held_out, seed=world.seed)
    pd.testing.assert_frame_equal(world.draws, before.draws)
    now = world.observe_or_nothing(name)
    earlier = now[~now["image_id"].isin(world.later)].reset_index(drop=True)
    pd.testing.assert_frame_equal(earlier, before.observe_or_nothing(name))
    assert name == "given" or len(earlier) == len(now)


@given(names, worlds(), st.data())
@some
def test_the_order_of_rows_does_not_matter(name, world, data):
    truth = dict(data.draw(st.permutations(list(world.truth.items()))))
    base = data.draw(st.permutations(world.base))
    other = World(truth, base, world.later, world.held_out, seed=world.seed)
    pd.testing.assert_frame_equal(other.draws, world.draws)
    other.draws, other.splits = world.draws[::-1], other.splits[::-1]
    expected = world.observe_or_nothing(name)
    pd.testing.assert_frame_equal(other.observe_or_nothing(name), expected)


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_observed_keeps_its_contract(name, tmp_path):
    truth = {(f"{i}", NAMES[i % 7]): 1 for i in range(20)} | {("3", "no"): 0}
    world = World(truth, [f"{i}" for i in range(20)], ["l"], ["t"])
    tables = {"draws": world.draws, "splits": world.splits, "manifest": world.manifest}
    observed, setting = world.observe(name), Setting.parse(name)
    schemas.validate_observed(observed, setting=setting, **tables, report_to=tmp_path)
    schemas.write_table(observed, tmp_path / "observed.parquet")
    schemas.write_table(world.draws, tmp_path / "draws.parquet")
    read = schemas.read_table(tmp_path / "observed.parquet", schemas.ObservedLabels)
    pd.testing.assert_frame_equal(read, observed)
    schemas.read_table(tmp_path / "draws.parquet", schemas.Draws)


# ---------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("name", ["ffl", "fpl-50", "sfl-50"])
def test_positives_only_cannot_give_full_labels(name):
    world = World({("a", "no"): 1, ("b", "NA"): 1}, ["a", "b"], [], [], unlisted="unknown")
    with pytest.raises(
        PlmclError, match=f"{name}: needs known negatives.*use fspl, sspl-P or given"
    ):
        world.observe(name)


def test_positives_only_can_give_single_positives():
    world = World({("a", "no"): 1, ("a", "NA"): 1}, ["a", "b"], [], [], unlisted="unknown")
    assert len(world.observe("fspl")) == 1
    assert entries(world.observe("given")) == {("a", "NA"): 1, ("a", "no"): 1}


@pytest.mark.parametrize("unlisted", ["negative", "unknown"])
def test_a_delivered_image_shows_its_tag_as_given_and_nothing_else(unlisted):
    """Worked by hand: b is of the base set; l came with a tag, m without one."""
    truth = {("b", "no"): 1, ("l", "NA"): 1}
    world = World(truth, ["b"], ["l", "m"], ["t"], unlisted)
    absent = {("b", name): 0 for name in NAMES} if unlisted == "negative" else {}
    assert entries(world.observe("given")) == absent | truth
    for name in ("fspl", "sspl-100"):
        assert entries(world.observe(name)) == {("b", "no"): 1}
    if unlisted == "negative":
        for name in ("ffl", "fpl-100", "sfl-100"):
            assert entries(world.observe(name)) == absent | {("b", "no"): 1}


def test_a_share_of_no_image_is_refused_with_the_counts():
    world = World({("a", "no"): 1}, ["a", "b", "c"], [], [])
    with pytest.raises(
        PlmclError, match=r"sspl-1: no label .* 0 of 3 training images have their turn"
    ):
        world.observe("sspl-1")


def test_a_source_without_labels_is_refused():
    """Case 47: images without labels are an unlabeled pool, but something must be labeled."""
    for name in ("given", "fspl"):
        with pytest.raises(PlmclError, match=f"{name}: no label would be observed"):
            World({}, ["a", "b"], [], [], unlisted="unknown").observe(name)


# ---------------------------------------------------------------------------------- describe


def test_the_counts_worked_out_by_hand():
    truth = {("a", "no"): 1, ("a", "NA"): 1, ("b", "no"): 1, ("t", "no"): 1, ("l", "no"): 1}
    world = World(truth, ["a", "b", "c", "d"], ["l"], ["t"])
    assert describe(world.observe("ffl"), world.draws, world.splits, Setting.parse("ffl")) == {
        "train images": 5,
        "train images that arrived later": 1,
        "val images": 0,
        "test images": 1,
        "images without a positive": 2,
        "images whose turn found no positive": 2,
        "labeled images": 4,
        "observed positives": 3,
        "observed negatives": 4 * len(NAMES) - 3,
    }
    setting = Setting.parse("sspl-50")
    counts = describe(world.observe("sspl-50"), world.draws, world.splits, setting)
    in_turn = sorted("abcd", key=lambda i: key(0, "turn", i))[:2]
    labeled = len({"a", "b"} & set(in_turn))
    assert counts["images whose turn found no positive"] == 2 - labeled
    assert counts["labeled images"] == counts["observed positives"] == labeled
    assert counts["observed negatives"] == 0
