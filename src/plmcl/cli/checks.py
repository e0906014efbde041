"""The pre-flight command."""

import json
import shutil
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

COLOURS = {"ok": typer.colors.GREEN, "warning": typer.colors.YELLOW, "problem": typer.colors.RED}
INDENT = " " * 9


def checks(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say what this machine has, and what the run of ./params.yaml needs and lacks.

    Each line is ok, a warning or a problem, with what to do. Exit code 2: there is a problem.

    Example: plmcl checks
    """
    from plmcl.checks import find_all

    found = []
    width = max(60, shutil.get_terminal_size().columns)
    for finding in find_all(Path.cwd()):
        found.append(finding)
        if as_json:
            continue
        status = typer.style(f"{finding.status:<9}", fg=COLOURS[finding.status])
        # An address or a path is cut nowhere, so that it can be copied.
        for number, text in enumerate((f"{finding.name}: {finding.found}", finding.advice)):
            prefix = "" if number == 0 else "-> "
            lines = textwrap.wrap(
                prefix + text,
                width - len(INDENT),
                break_long_words=False,
                break_on_hyphens=False,
            )
            if text:
                typer.echo((status if number == 0 else INDENT) + f"\n{INDENT}".join(lines))
    counts = {status: sum(f.status == status for f in found) for status in COLOURS}
    if as_json:
        findings = [asdict(finding) for finding in found]
        typer.echo(json.dumps({**counts, "findings": findings}, ensure_ascii=False))
    else:
        typer.echo(", ".join(f"{count} {status}" for status, count in counts.items()))
    if counts["problem"]:
        raise typer.Exit(2)
