"""The pre-flight: what machine and project lack is said before a run finds it out."""

from collections.abc import Iterator
from pathlib import Path

from plmcl.checks.finding import Finding, Status, guarded
from plmcl.checks.hardware import cores, disk, gpu, memory, shared_memory
from plmcl.checks.network import HttpAsk, ask
from plmcl.checks.project import project_findings
from plmcl.checks.software import providers, versions

__all__ = ["Finding", "Status", "find_all"]


def find_all(root: Path, *, ask: HttpAsk = ask) -> Iterator[Finding]:
    """All findings, each as soon as it is known; those of a run only if there is a params.yaml.

    Nothing is downloaded, and nothing is written but a file that goes again.

    Args:
        root: The folder that a run would be started in.
        ask: How a server is asked; see `network.ask`.
    """
    has_run = (root / "params.yaml").is_file()
    yield from guarded("versions", lambda: versions(training=has_run))
    yield from guarded("cores", cores)
    yield from guarded("memory", memory)
    yield from guarded("shared memory", shared_memory)
    yield from guarded("disk", lambda: disk(root))
    yield from guarded("gpu", gpu)
    yield from guarded("onnxruntime", providers)
    if has_run:
        yield from guarded("params.yaml", lambda: project_findings(root, ask))
    else:
        yield Finding("params.yaml", "ok", "none here: no run to look at")
