"""What the top of the page says: the headline, the subject, and what to keep in mind."""

from collections import Counter
from collections.abc import Sequence

from plmcl.data.manifest import Manifest
from plmcl.data.statuses import USABLE
from plmcl.report.results import Result
from plmcl.report.words import (
    FIGURE_NAMES,
    OPTIMISTIC,
    count,
    figure,
    labeled,
    selection_split,
    setting_in_words,
    why_no_map,
)

BASELINE = "an"


def headline(results: Sequence[Result], kept: Result) -> str:
    """The run whose model is kept, its test figure, and the highest of the others, plainly."""
    where = f"under {kept.setting} ({setting_in_words(kept.setting)})"
    if kept.value is None:
        return f"No figure: {why_no_map(kept)}."
    reached = f"{FIGURE_NAMES[kept.figure]} {figure(kept)} on {labeled(kept, 'test image')}"
    if len(results) == 1:
        return f"{kept.method} reaches {reached} {where}."
    choice = "" if kept.selection is None else f", chosen on the {selection_split(kept)} split"
    return f"{kept.method} is kept {where}{choice}: {reached}{_compared(results, kept)}."


def _compared(results: Sequence[Result], kept: Result) -> str:
    """How the test figure of the kept run stands to the highest of the others."""
    others = [r for r in results if r is not kept and r.figure == kept.figure]
    others = [r for r in others if r.value is not None]
    higher = [r for r in others if _is_higher(r, kept)]
    # Fewer labels make a lower figure anyway: the next one is of the same setting.
    candidates = higher or [r for r in others if r.setting == kept.setting]
    if not candidates:
        return ""
    other = max(candidates, key=lambda result: result.value or 0)
    name = other.method if other.setting == kept.setting else other.folder.name
    if higher:
        return f"; {name} has a higher test figure, {figure(other)}"
    if figure(other) == figure(kept):
        return f"; {name} is level"
    return f"; next is {name} with {figure(other)}"


def _is_higher(result: Result, kept: Result) -> bool:
    """Whether a run's test figure is higher than that of the kept one, as they are printed."""
    return (result.value or 0) > (kept.value or 0) and figure(result) != figure(kept)


def subject(results: Sequence[Result], manifest: Manifest) -> str:
    """What was trained on what."""
    params = results[0].record.params
    images = manifest.usable["image_id"]
    positives = int((manifest.labels["value"] == 1)[manifest.labels["image_id"].isin(images)].sum())
    usable = len(images)
    text = f"{count(len(results), 'run')} on {count(usable, 'image')}"
    aside = Counter(status for status in manifest.images["status"] if status not in USABLE)
    if aside:
        kinds = [f"{number} {status.replace('_', ' ')}" for status, number in sorted(aside.items())]
        text += f" ({', '.join(kinds)} set aside)"
    text += f" with {count(len(manifest.label_names), 'label')}"
    text += f", on average {positives / max(usable, 1):.1f} known on an image"
    if "model.backbone" in params:
        text += f"; backbone {params['model.backbone']}"
    return f"{text}."


def remarks(results: Sequence[Result], kept: Result) -> list[str]:
    """What a reader must know so as not to believe too much."""
    lines = []
    if kept.figure != "mAP" and kept.value is not None:
        lines.append(
            "mAP is n/a, for the reason below the table. Instead, the mean reciprocal rank is "
            "shown: 1 divided by the place of a known label when an image's labels are ordered by "
            "score, on average. 1 is perfect."
        )
    if any(result.is_optimistic for result in results):
        lines.append(
            f"Figures marked “{OPTIMISTIC}” come from the epoch that did best on the very images "
            "they are measured on: the paper's protocol. On new images expect less."
        )
    if choice := _choice_on_validation(results, kept):
        lines.append(choice)
    lines += _below_the_baseline(results)
    if results[0].record.params.get("data.source") == "scenes":
        lines.append(
            "The pictures are drawn, as a stand-in that needs no download: the figures show that "
            "the pipeline works, and say nothing about photographs."
        )
    if len(results) > 1 and len({result.record.tags.get("seed") for result in results}) == 1:
        lines.append("Each run has one seed: a small difference between methods may be chance.")
    return lines


def _choice_on_validation(results: Sequence[Result], kept: Result) -> str:
    """Why another run is not kept, although its test figure is higher."""
    if kept.is_optimistic or kept.selection is None:
        return ""
    if not any(r.figure == kept.figure and _is_higher(r, kept) for r in results):
        return ""
    return (
        "The validation split is the one to choose on, and there no run is ahead of "
        f"{kept.folder.name}. The test split only measures what was chosen: a choice made on it "
        "flatters itself."
    )


def _below_the_baseline(results: Sequence[Result]) -> list[str]:
    """A line for each setting under which a method is worse than assuming negatives."""
    lines = []
    for setting in dict.fromkeys(result.setting for result in results):
        here = [r for r in results if r.setting == setting and r.value is not None]
        baseline = next((r for r in here if r.method == BASELINE), None)
        if baseline is None:
            continue
        below = [
            f"{r.method} ({figure(r)})"
            for r in here
            if r.figure == baseline.figure and (r.value or 0) < (baseline.value or 0)
        ]
        if below:
            lines.append(
                f"Under {setting}, {BASELINE} ({figure(baseline)}), which only takes every unknown "
                f"label for absent, is better than {' and '.join(below)}: try another learning "
                "rate, more epochs, or another method."
            )
    return lines
