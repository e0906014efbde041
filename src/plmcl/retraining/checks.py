"""Rules and their answers, and those that a model's file answers alone: parity, a prediction."""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image

from plmcl.card import Card
from plmcl.data.images import load
from plmcl.errors import PlmclError
from plmcl.inference import Tagger
from plmcl.retraining.decision import Figures

NAMES_SHOWN = 3
SEED = 0  # of the noise
PHOTO = (48, 64, 3)  # height, width and colours of the noise that goes through the recipe

Answer = Literal["refuses", "asks", "holds"]
ORDER: tuple[Answer, ...] = ("refuses", "asks", "holds")


class Rule(NamedTuple):
    """A rule's answer, and its reason for people; `asks` leaves it to a person."""

    answer: Answer
    reason: str


def check_file(path: Path, label_names: Sequence[str], figures: Figures) -> list[Rule]:
    """What the file that would be served says of itself, and whether it runs.

    Args:
        path: The ONNX file.
        label_names: The labels that were scored, in the order of the model's outputs.
        figures: Gets what the export measured.
    """
    try:
        tagger = Tagger(path)
    except PlmclError as error:
        return [Rule("refuses", f"it cannot be served: {error}")]
    return [_parity(tagger.card, figures), _smoke(tagger, label_names)]


def _parity(card: Card, figures: Figures) -> Rule:
    try:
        tolerance = float(card.parity["tolerance"])
        differences = [float(value) for value in card.parity["max_difference"].values()]
        largest = max(differences)
        if not math.isfinite(sum([tolerance, *differences])):
            raise ValueError
    except (KeyError, AttributeError, TypeError, ValueError):
        return Rule(
            "refuses", f"its file records no comparison with torch: {dict(card.parity)!r:.80}"
        )
    figures |= {"parity_difference": largest, "parity_tolerance": tolerance}
    holds = all(difference < tolerance for difference in differences)
    return Rule(
        "holds" if holds else "refuses",
        f"ONNX {'equals' if holds else 'differs from'} torch: probabilities differ by "
        f"{largest:.1e} at most, less than {tolerance:.1e} is allowed",
    )


def _smoke(tagger: Tagger, label_names: Sequence[str]) -> Rule:
    """Score noise, once through the recipe and once as pixels of the model's size."""
    card, size = tagger.card, tagger.card.recipe.size
    if list(card.label_names) != list(label_names):
        return Rule(
            "refuses",
            f"its file names {len(card.label_names)} labels ({listed(card.label_names)}), scored "
            f"were {len(label_names)} ({listed(label_names)})",
        )
    noise = np.random.default_rng(SEED)
    photo = io.BytesIO()
    Image.fromarray(noise.integers(0, 256, PHOTO, dtype=np.uint8)).save(photo, "PNG")
    pixels = noise.integers(0, 256, (size, size, 3), dtype=np.uint8)
    try:
        probs = tagger.predict(np.stack([load(photo.getvalue(), card.recipe), pixels]))
    except Exception as error:  # ONNX Runtime has a kind of its own for each status code
        return Rule("refuses", f"smoke prediction: {' '.join(str(error).split()):.300}")
    if not ((probs >= 0) & (probs <= 1)).all():
        return Rule(
            "refuses", f"smoke prediction: {probs.min():g} to {probs.max():g} are no probabilities"
        )
    return Rule(
        "holds", f"smoke prediction: {len(probs)} images, {probs.shape[1]} labels, all finite"
    )


def listed(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
