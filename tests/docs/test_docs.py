"""The pages say what is there: links, commands, keys, tables, tests."""

import importlib.util
import json
import re
import shlex

import pytest
from pages import PAGES, anchors, blocks, column, prose, read, tables
from project import ROOT
from ruamel.yaml import YAML

PARAMS = YAML(typ="safe").load(ROOT / "params.yaml")
STAGES = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in PAGES}
OF_PLMCL_ITSELF = {"--help", "--install-completion", "--show-completion"}
EVERY_PAGE = pytest.mark.parametrize("page", TEXTS)
METHODS = {page: text for page, text in TEXTS.items() if page.startswith("docs/methods")}
FILE_SUFFIXES = {"csv", "json", "jsonl", "parquet", "pt", "onnx", "yaml", "py"}


def code_spans(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(text))


def lookup(dotted: str):
    value = PARAMS
    for part in dotted.split("."):
        value = value[part]
    return value


# ------------------------------------------------------------------------------------- links


@EVERY_PAGE
def test_links_between_pages_resolve(page):
    broken = []
    for target in re.findall(r"\]\(([^)]+)\)", prose(TEXTS[page])):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        path = (ROOT / page).parent / file if file else ROOT / page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(target)
    assert not broken


def test_every_page_is_named_in_the_readme():
    missing = [page for page in TEXTS if page != "README.md" and page not in TEXTS["README.md"]]
    assert not missing


def test_pictures_are_small_and_used():
    pictures = sorted((ROOT / "docs" / "images").iterdir())
    assert pictures
    for path in pictures:
        assert path.stat().st_size < 300_000, path
        assert any(path.name in text for text in TEXTS.values()), path


def test_code_and_tests_name_no_page_that_is_not_there():
    missing = []
    for folder in ("src", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name in re.findall(r"\b(?:docs/[\w-]+|README)\.md\b", path.read_text("utf-8")):
                if not (ROOT / name).exists():
                    missing.append((path.name, name))
    assert not missing


# ---------------------------------------------------------------------------------- commands


def command_lines() -> list[str]:
    return sorted({
        line for text in TEXTS.values() for block in blocks(text, "sh")
        for line in block.splitlines()
    })  # fmt: skip


@pytest.fixture(scope="module")
def plmcl_commands():
    from typer.main import get_command

    from plmcl.cli import app

    return get_command(app).commands


@pytest.mark.parametrize("line", command_lines())
def test_a_printed_command_can_be_typed(line, plmcl_commands):
    program, *arguments = shlex.split(line.partition(" > ")[0], comments=True)
    if program == "plmcl":
        name, *rest = arguments
        if name in OF_PLMCL_ITSELF:
            return
        plmcl_commands[name].make_context(name, rest)  # raises what a user would read
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE)
        assert set(arguments) <= set(targets)
    elif program == "dvc":
        from dvc.cli.parser import get_main_parser

        parsed = get_main_parser().parse_args(arguments)
        for change in getattr(parsed, "set_param", None) or []:
            lookup(change.partition("=")[0])
        if arguments[0] == "repro":
            assert {target.partition("@")[0] for target in parsed.targets} <= set(STAGES)
    elif program == "torchrun":
        from torch.distributed.run import get_args_parser

        parsed = get_args_parser().parse_args(arguments)
        assert importlib.util.find_spec(parsed.training_script)
        assert len(parsed.training_script_args) == 2  # setting and method
    elif program == "python":
        assert all((ROOT / argument).exists() for argument in arguments if "/" in argument)
    else:
        assert line in {
            "source .venv/bin/activate",
            "git restore params.yaml dvc.lock reports",
            'git commit -am "my results"',
            "cp -a aside/files/. photos/",
            "nvidia-cuda-mps-control -d",
            "echo quit | nvidia-cuda-mps-control",
        }


@EVERY_PAGE
def test_commands_and_options_named_in_the_text_exist(page, plmcl_commands):
    options = {
        name: {
            option
            for parameter in command.params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        | {"--help"}
        for name, command in plmcl_commands.items()
    }
    anywhere = set.union(*options.values())
    for span in code_spans(TEXTS[page]):
        if span.startswith("plmcl "):
            name, *rest = span.split()[1:]
            if name in OF_PLMCL_ITSELF:
                continue
            assert name in options, span
            assert {word for word in rest if word.startswith("--")} <= options[name], span
        elif re.match(r"--[a-z]", span):
            assert span.split()[0] in anywhere, span
        elif span.startswith("make "):
            assert f"\n{span.split()[1]}:" in read("Makefile"), span


# ---------------------------------------------------------------------------- keys and values


@EVERY_PAGE
def test_keys_named_in_the_text_are_in_params_yaml(page):
    named = set()
    for span in code_spans(TEXTS[page]):
        found = re.fullmatch(r"([a-z_]+(?:\.[a-z0-9_]+)+)(: .*)?", span)
        if found and found[1].split(".")[0] in PARAMS:
            named.add(found[1])
    for key in named:
        if key.rpartition(".")[2] not in FILE_SUFFIXES:
            lookup(key)
    if page in METHODS:
        assert len(named) > 12


@EVERY_PAGE
def test_defaults_in_tables_are_those_of_params_yaml(page):
    for table in tables(TEXTS[page]):
        for row in table:
            if "default" in row:
                key = next(iter(row.values())).strip("`")
                assert YAML(typ="safe").load(row["default"]) == lookup(key), key


def test_every_value_of_every_method_is_explained():
    keys = {f"methods.{name}.{key}" for name, part in PARAMS["methods"].items() for key in part}
    tables_of_fields = [cells for page in METHODS.values() for cells in column(page, "field")]
    assert sorted(key for cells in tables_of_fields for key in cells) == sorted(keys)


def test_every_method_is_in_the_table_of_methods_and_leads_to_its_section():
    from plmcl.methods import method_names

    cells = column(TEXTS["docs/methods.md"], "method")[0]
    names = [re.match(r"\[`(\w+)`\]\((.*)\)$", cell).groups() for cell in cells]
    assert sorted(name for name, _ in names) == method_names()
    for name, target in names:
        assert target.partition("#")[2].partition("-")[0] == name


def test_every_key_of_every_source_is_explained_with_its_default():
    keys = {f"sources.{name}.{key}" for name, part in PARAMS["sources"].items() for key in part}
    pages = [TEXTS["docs/data.md"], TEXTS["docs/datasets.md"]]
    listed = [key for page in pages for cells in column(page, "key") for key in cells]
    assert sorted(listed) == sorted([*keys, "data.path"])


def test_yaml_on_the_pages_is_a_part_of_a_params_yaml_or_a_grid():
    from plmcl.grid.plan import make_variants
    from plmcl.grid.spec import GridSpec
    from plmcl.params import load_params, parse_section

    for page, text in TEXTS.items():
        for block in blocks(text, "yaml"):
            values = YAML(typ="safe").load(block)
            if "rows" in values:
                spec = parse_section(GridSpec, values, page)
                assert make_variants(spec, load_params(ROOT / "params.yaml"))
            else:
                assert set(values) <= set(PARAMS), page


def test_every_key_of_a_grid_every_column_and_every_grid_is_explained():
    from plmcl.grid.results import COLUMNS
    from plmcl.grid.spec import GridSpec, Row

    page = TEXTS["docs/grids.md"]
    assert column(page, "key") == [list(GridSpec.model_fields)]
    assert column(page, "key of a row") == [list(Row.model_fields)]
    assert column(page, "column") == [list(COLUMNS)]
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "grids").glob("*.yaml")]
    assert sorted(*column(page, "grid")) == sorted(files)


def test_every_method_and_every_kind_of_setting_is_in_the_readmes_tables():
    methods, settings = column(TEXTS["README.md"], "method"), column(TEXTS["README.md"], "setting")
    # Settled by the files and by the pattern that params.yaml is held against.
    files = (ROOT / "src/plmcl/methods").glob("[a-z]*.py")
    named = {name for cell in methods[0] for name in cell.split("`, `")}
    assert {path.stem for path in files if path.stem != "base"} == named
    from plmcl.labels.settings import Setting

    assert {Setting.parse(name.replace("-P", "-40")).kind for name in settings[0]} == {
        "ffl", "fpl", "fspl", "sfl", "sspl", "given",
    }  # fmt: skip


# ------------------------------------------------------------------------------------- tables


def test_the_pipelines_table_names_every_stage_and_everything_that_it_writes():
    page = TEXTS["docs/pipeline.md"]
    assert column(page, "stage") == [list(STAGES)]
    for stage, body in STAGES.items():
        written = body.get("outs", []) + body.get("metrics", []) + body.get("plots", [])
        for out in written:
            path = out if isinstance(out, str) else next(iter(out))
            path = path.replace("${data.source}", "<source>")
            path = path.replace("${item.setting}-${item.method}", "<setting>-<method>")
            assert path in page, (stage, path)


def test_tables_are_those_of_the_contracts():
    from plmcl import schemas as s

    names = (
        s.Images, s.Labels, s.Difficult, s.NearDuplicates, s.Delivery, s.Splits, s.Draws,
        s.Predictions,
    )  # fmt: skip
    listed = column(TEXTS["docs/tables.md"], "column")
    assert listed == [list(schema.to_schema().columns) for schema in names]


def test_the_metadata_is_that_of_the_card():
    from dataclasses import fields

    from plmcl.card import Card

    cells = column(TEXTS["docs/onnx.md"], "key")[0]
    listed = [name.strip("`") for cell in cells for name in cell.split(", ")]
    assert listed == [f"plmcl.{name}" for name in ("format", *(f.name for f in fields(Card)))] or (
        set(listed) == {f"plmcl.{f.name}" for f in fields(Card)} | {"plmcl.format"}
    )


def test_json_on_the_pages_is_json():
    for text in TEXTS.values():
        for block in blocks(text, "json"):
            json.loads(block)


# -------------------------------------------------------------------------------------- cases


def cases() -> list[tuple[int, str]]:
    return [
        (int(row["case"]), row["test"].strip("`"))
        for table in tables(TEXTS["docs/cases.md"])
        for row in table
    ]


def test_every_test_that_the_cases_name_exists():
    there = {
        f"{path.relative_to(ROOT).as_posix()}::{name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE)
    }
    missing = [(number, test) for number, test in cases() if test not in there]
    assert not missing, "renamed or moved: change docs/cases.md"


def test_every_case_that_the_tests_name_is_in_the_table_once():
    numbers = [number for number, _ in cases()]
    assert len(numbers) == len(set(numbers))
    named = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for found in re.findall(
            r"(?<![a-z])[Cc]ases?[ _]((?:\d+(?:, | and )?)+)", path.read_text("utf-8")
        ):
            named |= {int(number) for number in re.findall(r"\d+", found)}
    assert named <= set(numbers), "add them to docs/cases.md"
