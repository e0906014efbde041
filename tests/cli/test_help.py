"""The help reads as a table of contents, each command's has an example, and Tab completes both."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from project import environment
from typer.main import get_command
from typer.testing import CliRunner

from plmcl.cli import PANELS, app

COMMANDS = get_command(app).commands


def examples(command):
    return re.findall(r"^\s*Example: (plmcl .+)$", COMMANDS[command].help, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_of_itself_that_can_be_typed(command):
    found = examples(command)
    assert found
    for line in found:
        _, name, *arguments = shlex.split(line.partition(" > ")[0])
        assert name == command
        COMMANDS[name].make_context(name, arguments)  # raises what a user would read


def test_the_help_lists_every_command_once_under_what_it_is_for():
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100"}).output
    headings = re.findall(r"╭─ (.+?) ─+╮", text)
    assert headings == ["Options", *PANELS]
    listed = re.findall(r"^│ ([a-z]+) ", text, re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)
    assert len(PANELS) >= 5


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("plmcl che", {"checks", "check"}), ("plmcl checks --", {"--json", "--help"})],
)
def test_tab_completes_commands_and_options(typed, offered):
    done = subprocess.run(
        [Path(sys.executable).parent / "plmcl"],  # the name that the shell completes
        env=environment(
            COMP_WORDS=typed,
            COMP_CWORD=str(len(typed.split()) - 1),
            _PLMCL_COMPLETE="complete_bash",
        ),
        capture_output=True,
        text=True,
    )
    assert set(done.stdout.split()) == offered, done.stderr
