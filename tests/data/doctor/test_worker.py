import json
import os
import subprocess
import sys
from pathlib import Path

from PIL import Image

import plmcl
from plmcl.data.doctor.finding import examine
from plmcl.data.images import Recipe

SOURCE = Path(plmcl.__file__).parents[1]
RECIPE = Recipe(size=32, background=(0, 0, 0), max_pixels=10_000)


def run(code, text=""):
    return subprocess.run(
        [sys.executable, "-P", *code],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    ).stdout


def test_it_imports_nothing_heavier_than_pillow():
    heavy = {"numpy", "pandas", "pyarrow", "torch", "pydantic", "inspect"}
    code = f"import sys, plmcl.data.doctor.worker; print({heavy} & set(sys.modules))"
    assert run(["-c", code]).strip() == "set()"


def test_each_name_is_answered_by_a_line_after_a_first_one(tmp_path):
    for name in ("a\n.png", "ä.png"):
        Image.linear_gradient("L").save(tmp_path / "new.png")
        (tmp_path / "new.png").rename(tmp_path / name)
    setup = {
        "root": str(tmp_path),
        "background": [0, 0, 0],
        "max_pixels": 10_000,
        "seconds": 30,
        "memory_bytes": 2**31,
    }
    questions = [setup, ["a\n.png"], ["gone.png", "ä.png"]]
    text = "".join(json.dumps(question) + "\n" for question in questions)
    first, *lines = run(["-m", "plmcl.data.doctor.worker"], text).splitlines()
    assert first == "[]"
    expected = [list(examine(tmp_path / name, RECIPE)) for name in ("a\n.png", "gone.png", "ä.png")]
    assert [json.loads(line) for line in lines] == expected
