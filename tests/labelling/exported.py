"""An export as Label Studio writes one, of tasks that we wrote."""

import json

from plmcl.labelling.label_studio import result


def annotation(choice, *, who=7, when="2026-01-02T03:04:05Z", number=1, **more):
    """One annotation; `choice` None for an empty one."""
    chosen = [] if choice is None else [{"id": "Dx_aB91ISN", "origin": "manual", **result(choice)}]
    return {
        "id": number,
        "completed_by": who,
        "result": chosen,
        "was_cancelled": False,
        "ground_truth": False,
        "created_at": when,
        "updated_at": when,
        "lead_time": 4.3,
        "task": number,
    } | more


def export(path, tasks, annotations):
    """Write the export: a list of annotations for each task."""
    exported = [
        {"id": number, **task, "annotations": given, "project": 83, "inner_id": number}
        for number, (task, given) in enumerate(zip(tasks, annotations, strict=True), start=1)
    ]
    path.write_text(json.dumps(exported, ensure_ascii=False), encoding="utf-8")
    return path
