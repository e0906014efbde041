"""Fill MLflow from the run records: what a fresh clone or DVC's run cache brought without a run."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from plmcl import tracking
from plmcl.run_record import RunRecord


def run(root: Path) -> list[str]:
    """Restore the runs below reports/runs that MLflow lacks; their names."""
    restored = []
    for path in sorted((root / "reports" / "runs").glob("*/run.json")):
        record = RunRecord.read(path)
        metrics, per_label = read_evaluation(path.parent)
        if tracking.restore(record, metrics, per_label, root=root):
            restored.append(record.name)
    return restored


def read_evaluation(run: Path) -> tuple[dict[str, Any] | None, pd.DataFrame | None]:
    """Figures and per-label table of a run's folder; None twice if it was not evaluated."""
    if not (run / "metrics.json").exists() or not (run / "per_label.csv").exists():
        return None, None
    metrics = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    per_label = pd.read_csv(
        run / "per_label.csv",
        keep_default_na=False,
        na_values={"ap": [""]},
        dtype={"label": str},
    )
    return metrics, per_label


def main() -> None:
    """Restore what MLflow lacks."""
    restored = run(Path.cwd())
    print(f"restored {len(restored)} runs{': ' if restored else ''}{', '.join(restored)}")
