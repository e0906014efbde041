"""The audit as a page with pictures: one file that needs no network."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from plmcl.labelling.audit import Audit, describe
from plmcl.labelling.suspicions import MISSING, WRONG
from plmcl.report.gallery import thumbnail
from plmcl.report.page import write_page

FIRST = 24
PER_LABEL = 6
LABELS = 40
WORDS = {
    MISSING: (
        "Missing",
        "Not known to be there, and the model is confident that they are: entries that nobody "
        "looked at, and labels that are said to be absent.",
    ),
    WRONG: (
        "Wrong",
        "Said to be there, and the model sees little of it, compared with what else is said to "
        "show that label.",
    ),
}


@dataclass(frozen=True)
class Suspect:
    """One suspicion with its picture.

    Attributes:
        entry: A row of `Audit.found`.
        picture: A small JPEG as a data URI; None where the file is gone.
        others: What else is said to be there.
    """

    entry: dict[str, Any]
    picture: str | None
    others: list[str]


def write_audit_page(result: Audit, out: Path) -> None:
    """Write the page: the strongest suspicions of each kind, then those of each label.

    Args:
        result: What was found.
        out: The HTML file.
    """
    trained = result.trained
    present = trained.manifest.labels[trained.manifest.labels["value"] == 1]
    train = trained.splits.loc[trained.splits["split"] == "train", "image_id"]
    seen = trained.observed[trained.observed["value"] == 1]
    # Of training images only what training could see: the rest may be what the setting hides.
    said = {
        **present[~present["image_id"].isin(train)].groupby("image_id")["label"].agg(list),
        **seen.groupby("image_id")["label"].agg(list),
    }

    @cache
    def picture(path: str) -> str | None:
        return thumbnail(trained.paths.images, path)

    def suspects(rows: Any) -> list[Suspect]:
        return [
            Suspect(
                row,
                picture(row["path"]),
                [label for label in said.get(row["image_id"], []) if label != row["label"]],
            )
            for row in rows.to_dict("records")
        ]

    kinds = []
    for kind, (title, meaning) in WORDS.items():
        of_kind = result.found[result.found["kind"] == kind]
        first = of_kind.head(FIRST)
        rest = of_kind[(of_kind["label_rank"] <= PER_LABEL) & (of_kind["rank"] > FIRST)]
        labels = list(dict.fromkeys(of_kind["label"]))[:LABELS]
        kinds.append(
            {
                "title": title,
                "meaning": meaning,
                "number": len(of_kind),
                "first": suspects(first),
                "labels": [
                    (label, suspects(rest[rest["label"] == label]))
                    for label in labels
                    if (rest["label"] == label).any()
                ],
                "left_out": of_kind["label"].nunique() - len(labels),
            }
        )
    write_page(
        "audit.html.j2",
        out,
        run=trained.name,
        lines=describe(result),
        kinds=kinds,
        observed=result.observed,
        per_label=PER_LABEL,
    )
