"""Whether a challenger replaces the champion: both on the same test images, rule by rule.

No rule makes up for another. A broken one refuses the challenger; one that only a person can judge
leaves it a proposal; else it is promoted.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from plmcl.evaluation import average_precision, evaluate
from plmcl.params import Gate
from plmcl.retraining.checks import ORDER, Rule, check_file, listed
from plmcl.retraining.decision import Decision as Decision
from plmcl.retraining.decision import Figures, LabelRow
from plmcl.retraining.resampling import bootstrap_gains, interval
from plmcl.retraining.scored import Cells
from plmcl.retraining.scored import Scored as Scored

SEED = 0  # of the resamples: the same models give the same decision

NO_MAP = "test mAP n/a: no label has a known positive and a known negative on the test split"


class _Label(NamedTuple):
    ap: float | None
    positives: int


_Labels = dict[str, _Label]


def decide(champion: Scored | None, challenger: Scored, gate: Gate) -> Decision:
    """Judge a challenger.

    Args:
        champion: None if there is none yet: then what the challenger shows alone decides.
        challenger: To be judged.
        gate: The figures of the rules.

    Raises:
        PlmclError: A model's tables do not belong together.
    """
    new = Cells.of(challenger)
    after = _by_label(new)
    before: _Labels = {}
    figures: Figures = {
        "test_mAP": _mean(after.values()),
        "test_images": len(new.image_ids),
        "test_labels": len(new.label_names),
    }
    if champion is None:
        rules = [_first(figures["test_mAP"])]
    else:
        rules, before = _compare(champion, new, after, gate, figures)
    rules += [
        _completeness(challenger, new),
        *check_file(challenger.model, new.label_names, figures),
    ]
    rules.sort(key=lambda rule: ORDER.index(rule.answer))
    return Decision(
        promote=rules[0].answer == "holds",
        reasons=[rule.reason for rule in rules],
        figures=figures,
        labels=[
            _label_row(name, before.get(name), after.get(name))
            for name in dict.fromkeys([*after, *before])
        ],
        champion=None if champion is None else champion.version,
        challenger=challenger.version,
        proposes=rules[0].answer == "asks",
    )


def _first(mean: float | None) -> Rule:
    if mean is None:
        return Rule("asks", f"the first model: {NO_MAP}")
    return Rule("holds", f"the first model, nothing to compare with: test mAP {100 * mean:.1f}")


def _compare(
    champion: Scored, new: Cells, after: _Labels, gate: Gate, figures: Figures
) -> tuple[list[Rule], _Labels]:
    """The rules about the two, with their figures, and the champion's AP if it compares."""
    old = Cells.of(champion)
    common = [name for name in new.label_names if name in set(old.label_names)]
    added = [name for name in new.label_names if name not in set(common)]
    removed = [name for name in old.label_names if name not in set(common)]
    figures |= {
        "labels_compared": len(common),
        "labels_added": len(added),
        "labels_removed": len(removed),
    }
    rules = []
    if added:
        rules.append(Rule("holds", f"new labels, not compared: {listed(added)}"))
    if removed:
        text = f"labels that {champion.version} has and it has not: {listed(removed)}"
        rules.append(Rule("asks", text))
    if not common:
        return [*rules, Rule("refuses", f"no label in common with {champion.version}")], {}
    old_common, new_common = old.of_labels(common), new.of_labels(common)
    if difference := old_common.difference(new_common):
        text = (
            f"not the test split that {champion.version} was scored on: {difference}; `plmcl "
            "refreeze` scores it on the present one"
        )
        return [*rules, Rule("refuses", text)], {}
    before = _by_label(old)
    rules += [
        _gain(champion.version, old_common, new_common, gate, figures),
        _falls({name: (before[name], after[name]) for name in common}, gate, figures),
    ]
    return rules, before


def _gain(champion: str, old: Cells, new: Cells, gate: Gate, figures: Figures) -> Rule:
    before, after = (evaluate(c.targets, c.observed, c.probs).metrics for c in (old, new))
    old_map, new_map = before["mAP"], after["mAP"]
    figures |= {"champion_mAP": old_map, "challenger_mAP": new_map, "min_gain": gate.min_gain}
    gains = bootstrap_gains(
        new.targets, new.observed, old.probs, new.probs, resamples=gate.resamples, seed=SEED
    )
    bounds = interval(gains)
    if old_map is None or new_map is None or bounds is None:
        ranks = [metrics["mean_reciprocal_rank"] for metrics in (after, before)]
        shown = " against ".join("n/a" if rank is None else f"{rank:.3f}" for rank in ranks)
        return Rule("asks", f"{NO_MAP}; mean reciprocal rank of the known labels {shown}")
    low, high = bounds
    figures |= {"gain": new_map - old_map, "gain_low": low, "gain_high": high}
    figures["resamples"] = gate.resamples
    text = (
        f"test mAP {100 * new_map:.1f} against {100 * old_map:.1f} of {champion}: gain "
        f"{100 * (new_map - old_map):+.1f}, 95 % interval {100 * low:+.1f} to {100 * high:+.1f}, "
        f"lowest allowed {100 * gate.min_gain:+.1f}"
    )
    if low < gate.min_gain:
        return Rule("refuses", f"{text}: the lower end is below that")
    return Rule("holds", text)


def _falls(labels: dict[str, tuple[_Label, _Label]], gate: Gate, figures: Figures) -> Rule:
    falls = []
    for name, (old, new) in labels.items():
        if old.ap is not None and new.ap is not None and new.positives >= gate.min_positives:
            text = f"{name} by {100 * (old.ap - new.ap):.1f} to {100 * new.ap:.1f}"
            falls.append((old.ap - new.ap, text))
    falls.sort(reverse=True)
    figures |= {
        "labels_judged": len(falls),
        "largest_fall": falls[0][0] if falls else None,
        "max_label_drop": gate.max_label_drop,
    }
    left_out = (
        f" ({len(labels) - len(falls)} of {len(labels)} labels not judged: fewer than "
        f"{gate.min_positives} positives)"
        if len(falls) < len(labels)
        else ""
    )
    deep = [text for fall, text in falls if fall > gate.max_label_drop]
    allowed = f"more than {100 * gate.max_label_drop:.1f}"
    if deep:
        return Rule("refuses", f"labels whose AP falls by {allowed}: {listed(deep)}{left_out}")
    most = f"; the most, {falls[0][1]}" if falls and falls[0][0] > 0 else ""
    return Rule("holds", f"no label's AP falls by {allowed}{most}{left_out}")


def _completeness(challenger: Scored, cells: Cells) -> Rule:
    if challenger.complete:
        return Rule("holds", f"all labels of the {len(cells.image_ids):,} test images are known")
    known, entries = np.count_nonzero(cells.observed), cells.observed.size
    return Rule(
        "asks",
        f"the test split is not completely labeled: {known:,} of {entries:,} labels of "
        f"{len(cells.image_ids):,} images are known; label the rest, or decide yourself: `plmcl "
        f"promote {challenger.version}`",
    )


def _by_label(cells: Cells) -> _Labels:
    ap = average_precision(cells.targets, cells.observed, cells.probs)
    positives = (cells.observed & (cells.targets == 1)).sum(axis=0)
    return {
        name: _Label(None if np.isnan(value) else float(value), int(number))
        for name, value, number in zip(cells.label_names, ap, positives, strict=True)
    }


def _mean(labels: Iterable[_Label]) -> float | None:
    defined = [label.ap for label in labels if label.ap is not None]
    return float(np.mean(defined)) if defined else None


def _label_row(name: str, old: _Label | None, new: _Label | None) -> LabelRow:
    before, after = (label.ap if label else None for label in (old, new))
    shown = new or old
    assert shown is not None
    return {
        "label": name,
        "champion_AP": before,
        "challenger_AP": after,
        "difference": None if before is None or after is None else after - before,
        "positives": shown.positives,
    }
