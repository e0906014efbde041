"""Stage check: what can be wrong in params.yaml is found before anything is downloaded."""

from pathlib import Path

from plmcl.data.sources import make_source, source_names
from plmcl.errors import PlmclError
from plmcl.labels.settings import Setting
from plmcl.methods import make_method, method_names
from plmcl.models import check_backbone
from plmcl.params import Params, load_params
from plmcl.stages.entry import run_stage
from plmcl.stages.paths import Paths


def run(params: Params) -> None:
    """Check every plug-in's section, every name in the grid, and the backbone with its weights.

    Raises:
        PlmclError: All the problems, a line each.
    """
    problems = plug_in_problems(params)
    try:
        check_backbone(params.model.backbone, params.model.weights)
    except PlmclError as error:
        problems.append(str(error))
    if problems:
        raise PlmclError("\n".join(problems))


def plug_in_problems(params: Params) -> list[str]:
    """What is wrong with the plug-ins' sections and the names in the grid, a line each."""
    problems = []
    for check, names in (
        (lambda name: make_method(name, params.methods), {*params.methods, *params.grid.methods}),
        (lambda name: make_source(name, params.sources), {*params.sources, params.data.source}),
        (Setting.parse, set(params.grid.settings)),
    ):
        for name in sorted(names):
            try:
                check(name)
            except PlmclError as error:
                problems.append(str(error))
    return problems


def main() -> None:
    """Check params.yaml."""
    file = Path("params.yaml")
    params = load_params(file)
    try:
        run(params)
    except PlmclError as error:
        lines = str(error).splitlines()
        raise PlmclError("\n".join(f"{file}: {line}" for line in lines)) from None
    path = Paths.of_project(Path.cwd(), params.data.source).params_ok
    path.parent.mkdir(exist_ok=True)
    # Always the same bytes: what depends on it is not repeated when a value changes.
    path.write_text("params.yaml can be used\n")
    print(
        f"params.yaml: ok; methods known: {', '.join(method_names())}; "
        f"sources known: {', '.join(source_names())}"
    )


if __name__ == "__main__":
    run_stage(main)
