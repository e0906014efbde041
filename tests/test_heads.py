"""Heads against hand-worked examples and loops."""

import math

import pytest
import torch

from plmcl.heads import HEADS, BoostedHead, LinearHead, UnitHead, make_head


def test_the_head_of_a_name_and_seed_is_the_same_and_leaves_the_global_state():
    for name, kind in HEADS.items():
        torch.manual_seed(7)
        expected = torch.rand(1)
        torch.manual_seed(7)
        first, second, other = (make_head(name, [3, 4], 2, seed=s) for s in (0, 0, 1))
        assert torch.rand(1) == expected
        assert type(first) is kind
        assert first.weight.shape == (2, 7)
        assert first.parts == [3, 4]
        assert torch.equal(first.weight, second.weight)
        assert torch.equal(first.bias, second.bias)
        assert not torch.equal(first.weight, other.weight)


def test_a_head_drops_features_only_while_it_trains():
    head = LinearHead(100, 2)
    head.dropout = 0.5
    features = torch.randn(3, 100)
    assert not torch.equal(head(features), head(features))
    head.eval()
    assert torch.equal(head(features), head(features))
    drawn = head(features, passes=2)
    assert torch.equal(drawn[0], head(features))
    assert not torch.equal(drawn[1], drawn[2])


def test_a_unit_head_of_a_hand_worked_image():
    # Parts (x, y) and (z, t, u); minus the center: (3, 4), of length 5, and (1, 2, 2), of 3.
    head = UnitHead(5, 2, [2, 3])
    with torch.no_grad():
        head.center.copy_(torch.tensor([1.0, 1, 0, 0, -1]))
        head.weight.copy_(torch.tensor([[5.0, 0, 0, 0, 3], [0, 10, -3, 3, 0]]))
        head.bias.copy_(torch.tensor([0.5, -1]))
    image = torch.tensor([[4.0, 5, 1, 2, 1]])
    expected = [[3 / 5, 4 / 5, 1 / 3, 2 / 3, 2 / 3]]
    torch.testing.assert_close(head.prepare(image), torch.tensor(expected))
    # 5 * 3/5 + 3 * 2/3 + 1/2, and 10 * 4/5 - 1 + 2 - 1.
    torch.testing.assert_close(head(image), torch.tensor([[5.5, 8.0]]))


@pytest.mark.parametrize("parts", [[], [6], [4, 2], [1, 2, 3]])
def test_a_unit_head_is_the_loop_over_images_and_parts(parts):
    torch.manual_seed(0)
    head, features = UnitHead(6, 3, parts), torch.randn(4, 6)
    head.center.copy_(torch.randn(6))
    logits = head(features).detach()
    weight, bias = head.weight.tolist(), head.bias.tolist()
    for image in range(4):
        prepared, start = [], 0
        for width in parts or [6]:
            places = range(start, start + width)
            centred = [float(features[image, d] - head.center[d]) for d in places]
            length = math.sqrt(sum(value**2 for value in centred))
            prepared += [value / length for value in centred]
            start += width
        for label in range(3):
            expected = bias[label]
            for d in range(6):
                expected += weight[label][d] * prepared[d]
            assert float(logits[image, label]) == pytest.approx(expected, abs=1e-5)


def test_a_unit_head_gives_each_part_length_1_whatever_its_scale():
    torch.manual_seed(0)
    head = UnitHead(9, 1, [3, 6])
    features = torch.randn(5, 9) * torch.tensor([1e4] * 3 + [1e-3] * 6)
    for part in head.prepare(features).split([3, 6], dim=1):
        torch.testing.assert_close(part.norm(dim=1), torch.ones(5))
    # How strongly an image shows what it shows is nothing.
    torch.testing.assert_close(head(features * 7), head(features))


def test_an_image_that_is_the_center_is_nothing_special():
    head = UnitHead(4, 2)
    head.center.copy_(torch.randn(4))
    features = head.center.clone()[None].requires_grad_()
    logits = head(features)
    torch.testing.assert_close(logits[0], head.bias)
    logits.sum().backward()
    assert features.grad.isfinite().all()


def test_the_center_is_saved_with_the_weights_and_no_optimizer_moves_it():
    head = make_head("unit", [2, 2], 3, seed=0)
    head.center.copy_(torch.tensor([1.0, 2, 3, 4]))
    other = make_head("unit", [2, 2], 3, seed=1)
    other.load_state_dict(head.state_dict())
    assert other.center.tolist() == [1, 2, 3, 4]
    features = torch.randn(2, 4)
    assert torch.equal(other(features), head(features))
    assert [name for name, _ in head.named_parameters()] == ["weight", "bias"]


def test_a_boosted_head_is_the_loop_over_places():
    torch.manual_seed(0)
    head, maps = BoostedHead(4, 3), torch.randn(2, 4, 2, 5)
    logits = head(maps)
    for image in range(2):
        for label in range(3):
            total = 0.0
            for y in range(2):
                for x in range(5):
                    here = float(head.bias[label])
                    for d in range(4):
                        here += float(head.weight[label, d] * maps[image, d, y, x])
                    total += 5 * here if here > 0 else here
            assert float(logits[image, label]) == pytest.approx(total / 10, rel=1e-4)


def test_without_boost_a_boosted_head_is_the_linear_one_on_the_mean_feature(monkeypatch):
    monkeypatch.setattr(BoostedHead, "BOOST", 1.0)
    boosted, linear, maps = BoostedHead(4, 3), LinearHead(4, 3), torch.randn(2, 4, 3, 3)
    linear.load_state_dict(boosted.state_dict())
    torch.testing.assert_close(boosted(maps), linear(maps.mean(dim=(2, 3))))
