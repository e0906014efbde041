"""What SECURITY.md says of the code is looked up in the code."""

import ast
import re
from collections.abc import Iterator

import pytest
from project import ROOT

FOLDERS = ("src", "flows", "benchmarks")

# Modules that run what they read, or write XML's entities out.
FORBIDDEN_MODULES = {
    *("pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"),
    *("yaml", "xml.sax", "xml.dom", "lxml", "pty", "telnetlib", "ftplib"),
}
# Module -> where it may be used: paths, or their beginnings.
ONLY_IN = {
    # The benchmark asks servers that it has started on this machine; checks ask for no content.
    "httpx": (
        "src/plmcl/data/downloads", "src/plmcl/checks/network.py", "benchmarks/retraining_rounds.py"
    ),
    "requests": (), "urllib.request": (), "urllib3": (), "aiohttp": (), "http.client": (),
    "xml": ("src/plmcl/data/formats/voc.py",),
    "tarfile": ("src/plmcl/data/archives",),
    "zipfile": ("src/plmcl/data/archives",),
}  # fmt: skip
FORBIDDEN_NAMES = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_METHODS = {
    *("extractall", "unpack_archive", "system", "popen", "mktemp", "urlopen", "urlretrieve"),
    *("socket", "create_connection"),
    *("read_pickle", "to_pickle", "read_hdf", "loadmat"),
}
# Call -> the arguments that it must have, with their values.
NEEDED = {
    "torch.load": {"weights_only": True},
    "np.load": {"allow_pickle": False},
    "np.save": {"allow_pickle": False},
    "Image.open": {"formats": ...},
    "Environment": {"autoescape": True},
}
SAFE_YAML = {"safe", "base", "rt"}
# Pillow's switches for the whole process: cut files become grey, limits are lifted.
SWITCHES = {"LOAD_TRUNCATED_IMAGES", "MAX_IMAGE_PIXELS"}


def faults(path: str, source: str) -> list[str]:
    """What a file does that no file of ours may."""
    return [
        f"{path}:{node.lineno}: {fault}"
        for node in ast.walk(ast.parse(source))
        for fault in _faults(path, node)
    ]


def _faults(path: str, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (f for alias in node.names for f in _module_faults(path, alias.name))
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield from _module_faults(path, f"{node.module}.{alias.name}")
    elif isinstance(node, ast.Call):
        yield from _call_faults(path, node)
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (t.attr for t in targets if isinstance(t, ast.Attribute) and t.attr in SWITCHES)


def _module_faults(path: str, name: str) -> Iterator[str]:
    parts = name.split(".")
    names = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    yield from names & FORBIDDEN_MODULES
    yield from (module for module in names & set(ONLY_IN) if not path.startswith(ONLY_IN[module]))


def _call_faults(path: str, node: ast.Call) -> Iterator[str]:
    called = ast.unparse(node.func)
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    if called in FORBIDDEN_NAMES or called.rpartition(".")[2] in FORBIDDEN_METHODS:
        yield called
    if called == "Image.open" and path.startswith("benchmarks/"):
        return  # what we are measured against
    for name, expected in NEEDED.get(called, {}).items():
        value = given.get(name)
        if value is None or not (expected is ... or _constant(value) is expected):
            yield f"{called} without {name}={expected}"
    if "shell" in given and _constant(given["shell"]) is not False:
        yield "shell"
    if called == "YAML" and "typ" in given and _constant(given["typ"]) not in SAFE_YAML:
        yield "YAML of another type"


def _constant(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else node


def test_no_file_does_what_is_forbidden():
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > 60
    found = [
        fault
        for path in paths
        for fault in faults(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import xml.etree.ElementTree as ET",
        "from xml.dom import minidom",
        "import httpx",
        "from urllib.request import urlopen",
        "from urllib import request",
        "eval(text)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=safely)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "archive.extractall(folder)",
        "os.system(command)",
        "socket.create_connection(address)",
        "subprocess.run(command, shell=True)",
        "YAML(typ='unsafe')",
        "Image.open(path)",
        "ImageFile.LOAD_TRUNCATED_IMAGES = True",
        "Image.MAX_IMAGE_PIXELS = None",
        "Environment(loader=loader)",
    ],
)
def test_what_is_forbidden_is_found(source):
    assert faults("src/plmcl/example.py", source)


def test_what_is_allowed_is_not_found():
    allowed = """
import subprocess
from urllib.parse import urlsplit
torch.load(path, map_location="cpu", weights_only=True)
np.load(path, allow_pickle=False)
subprocess.run(command, check=True, shell=False)
YAML(typ="safe", pure=True)
Image.open(file, formats=FORMATS)
model.eval()
re.compile(pattern)
"""
    assert faults("src/plmcl/example.py", allowed) == []


def test_the_page_names_only_what_is_there():
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:tests|docs)/[\w/.]+)`", page)
    assert len(named) >= 3
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert "\naudit:" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_page_names_the_limits_of_the_code():
    from plmcl.data.decoding import FORMATS, MAX_BYTES
    from plmcl.data.doctor.pool import SECONDS_A_FILE
    from plmcl.params import load_params

    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert sorted(FORMATS) == sorted(["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "AVIF"])
    assert "JPEG, PNG, WebP, BMP, GIF, TIFF and AVIF" in page
    assert f"{MAX_BYTES / 1e9:g} GB a file" in page
    assert f"{SECONDS_A_FILE:g} seconds a file" in page
    millions = load_params(ROOT / "params.yaml").image.max_pixels / 1e6
    assert f"`image.max_pixels` ({millions:g} million)" in page
