"""Where label state lies, by its size, and what it begins with."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from project import ROOT

from plmcl.errors import PlmclError
from plmcl.labels import initial
from plmcl.labels.initial import make_store
from plmcl.labels.mapped import MappedStore
from plmcl.methods import make_method
from plmcl.params import load_params

N, L = 1000, 250  # float32 (N, L) is 1 MB
IDS = [f"{i}.jpg" for i in range(N)]
PARAMS = load_params(ROOT / "params.yaml")


def make(method, megabytes, precision="float32", ranks=1, carry=None, **values):
    rng = np.random.default_rng(0)
    observed = rng.random((N, L)) < 0.1
    return make_store(
        IDS,
        observed.astype(np.uint8),
        observed,
        make_method(method, PARAMS.methods | {method: PARAMS.methods[method] | values}),
        SimpleNamespace(state_memory_mb=megabytes, state_precision=precision),
        seed=0,
        device=torch.device("cpu"),
        ranks=ranks,
        carry=carry or (lambda fresh, known, image_ids: fresh),
    )


def test_it_is_in_memory_if_it_fits_there_and_else_in_files():
    assert not isinstance(make("plmcl", 2), MappedStore)
    assert isinstance(make("plmcl", 1), MappedStore)
    assert not isinstance(make("plmcl", 1, "float16"), MappedStore)
    assert not isinstance(make("an", 0), MappedStore)  # no state


@pytest.mark.parametrize("method", ["plmcl", "role"])
def test_files_begin_with_what_memory_begins_with(tmp_path, monkeypatch, method):
    """ROLE draws its beginning: the same numbers, whatever the blocks."""
    monkeypatch.setattr(initial, "BLOCK", 96)
    memory, mapped = make(method, 10), make(method, 0)
    mapped.open(tmp_path)
    rows = torch.arange(N)
    read = mapped.read(rows)
    assert read.keys() == memory.state.keys()
    assert all(torch.equal(read[name], memory.state[name]) for name in read)


def test_what_is_carried_over_is_asked_for_with_the_rows_that_it_belongs_to(tmp_path, monkeypatch):
    monkeypatch.setattr(initial, "BLOCK", 96)

    def carry(fresh, known, image_ids):
        assert len(known) == len(image_ids) == len(fresh["latent"])
        numbers = torch.tensor([float(name.removesuffix(".jpg")) for name in image_ids])
        return {name: values * 0 + numbers[:, None] for name, values in fresh.items()}

    mapped = make("plmcl", 0, carry=carry)
    mapped.open(tmp_path)
    assert mapped.read(torch.tensor([0, 95, 96, 999]))["velocity"][:, 7].tolist() == [
        0,
        95,
        96,
        999,
    ]


def test_counts_are_not_stored_in_half_precision():
    role = make("role", 10, "float16").state
    assert {name: values.dtype for name, values in role.items()} == {
        "latent": torch.float16,
        "moment": torch.float32,
        "second_moment": torch.float32,
        "step": torch.float32,
    }


def test_what_must_be_in_memory_is_refused_with_the_value_to_set():
    with pytest.raises(PlmclError) as refusal:
        make("em", 1, apl_weight=0.1)
    assert str(refusal.value) == (
        "train.state_memory_mb: 1, and the label state is 2 MB; it must be in memory, since "
        "EntropyMaximisation looks at all of it after each epoch: set it to 3"
    )
    with pytest.raises(PlmclError, match="since 2 processes share it: set it to 3"):
        make("plmcl", 1, ranks=2)
