import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from plmcl.data.doctor import pool
from plmcl.data.doctor.finding import examine
from plmcl.data.doctor.pool import examine_in_workers
from plmcl.data.images import Recipe
from plmcl.errors import PlmclError

RECIPE = Recipe(size=32, background=(0, 0, 0), max_pixels=50_000_000)


def save(path, size=(30, 20)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.linear_gradient("L").resize(size).convert("RGB").save(path)
    return path


def run(root, names, recipe=RECIPE, **options):
    """Findings in the order of `names`."""
    found = {}
    for part in examine_in_workers(root, names, recipe, **options):
        for position, finding in part:
            assert position not in found
            found[position] = finding
    assert sorted(found) == list(range(len(names)))
    return [found[position] for position in range(len(names))]


def slow_jpeg(path):
    """A progressive JPEG whose last scan comes again and again, within what is allowed."""
    buffer = io.BytesIO()
    Image.new("L", (6000, 6000), 128).save(buffer, "JPEG", progressive=True)
    content = buffer.getvalue()
    last = content[content.rindex(b"\xff\xda") : -2]
    path.write_bytes(content[:-2] + last * 60 + b"\xff\xd9")
    return path


def children():
    pid = os.getpid()
    return {int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


@pytest.fixture
def one_core(monkeypatch):
    monkeypatch.setattr(pool, "usable_cores", lambda: 1)


def test_each_file_is_found_as_in_this_process(tmp_path):
    names = [f"{i % 7}/{i:03d}.png" for i in range(300)]
    for i, name in enumerate(names):
        save(tmp_path / name, (10 + i, 5))
    (tmp_path / names[7]).write_bytes(b"")
    (tmp_path / names[8]).write_bytes(b"<html>")
    before = children()
    assert run(tmp_path, names) == [examine(tmp_path / name, RECIPE) for name in names]
    assert children() == before


def test_names_may_hold_anything(tmp_path):
    names = [
        "new\nline.png",
        'quote".png',
        "back\\slash.png",
        "é 日本 🌊.png",
        "[]",
        "\x01\x7f.png",
    ]
    names += ["/".join(["n" * 200] * 15) + f"/{i}\n.png" for i in range(200)]  # 3 kB each
    for name in names:
        path = tmp_path / name
        save(path.with_name("new.png")).rename(path)
    assert {finding.status for finding in run(tmp_path, names)} == {"ok"}


def test_no_file_starts_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "_Worker", None)
    assert run(tmp_path, []) == []


def test_a_crash_costs_one_file(tmp_path, one_core):
    names = [f"{i:02d}.png" for i in range(40)]
    for name in names:
        save(tmp_path / name)
    slow_jpeg(tmp_path / names[20])
    before, killed = children(), []
    found = {}
    for part in examine_in_workers(tmp_path, names, RECIPE):
        found |= dict(part)
        if len(found) == 20 and not killed:  # all before the slow one
            killed = list(children() - before)
            os.kill(killed[0], signal.SIGSEGV)
    assert len(killed) == 1
    assert found[20][:3] == ("unreadable", "the decoder crashed (signal 11)", "")
    assert [found[i].status for i in range(40) if i != 20] == ["ok"] * 39
    assert children() == before


def test_a_file_that_takes_too_long_is_given_up(tmp_path, one_core):
    names = ["a.png", "slow.jpg", "b.png"]
    slow_jpeg(tmp_path / "slow.jpg")
    save(tmp_path / "a.png")
    save(tmp_path / "b.png")
    start = time.monotonic()
    found = run(tmp_path, names, seconds_a_file=0.5)
    assert time.monotonic() - start < 30
    assert [finding.status for finding in found] == ["ok", "unreadable", "ok"]
    assert found[1].reason == "decoding took longer than 0.5 s"


@pytest.mark.skipif(sys.platform != "linux", reason="no limit elsewhere")
def test_a_file_that_eats_memory_is_too_large(tmp_path, one_core):
    names = ["a.png", "large.png", "b.png"]
    save(tmp_path / "large.png", (7000, 7000))  # 200 MB decoded
    save(tmp_path / "a.png")
    save(tmp_path / "b.png")
    found = run(tmp_path, names, memory_bytes=200_000_000)
    assert [finding.status for finding in found] == ["ok", "too_large", "ok"]
    assert found[1].reason == "not enough memory to decode it"
    assert {finding.status for finding in run(tmp_path, names)} == {"ok"}


def test_files_that_all_crash_are_all_findings(tmp_path, monkeypatch):
    # A worker reads our sitecustomize first: here examining kills the process.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'plmcl.data.doctor.worker' in sys.orig_argv:\n"
        "    import plmcl.data.doctor.finding as module\n"
        "    module.examine = lambda path, recipe: os._exit(3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = run(tmp_path, [f"{i}.png" for i in range(5)])
    assert {finding[:2] for finding in found} == {
        ("unreadable", "the decoder crashed (exit status 3)")
    }


def test_a_program_that_does_not_start_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "_SOURCE", tmp_path)
    (tmp_path / "plmcl").mkdir()
    (tmp_path / "plmcl/__init__.py").write_text("raise ImportError('no such luck')")
    with pytest.raises(PlmclError, match="did not start: ImportError: no such luck"):
        run(tmp_path, ["a.png"])


def test_the_folder_where_one_is_gives_no_modules(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("import os; os._exit(9)")
    (tmp_path / "PIL.py").write_text("import os; os._exit(9)")
    save(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path, ["a.png"])[0].status == "ok"


def test_a_caller_that_stops_leaves_no_process(tmp_path):
    slow_jpeg(tmp_path / "slow.jpg")
    save(tmp_path / "a.png")
    before = children()
    examined = examine_in_workers(tmp_path, ["a.png", "slow.jpg"], RECIPE)
    next(examined)
    assert children() != before
    examined.close()
    assert children() == before


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_leaves_no_process(tmp_path, how):
    slow_jpeg(tmp_path / "slow.jpg")
    save(tmp_path / "a.png")
    program = (
        "import sys; from pathlib import Path\n"
        "from plmcl.data.doctor.pool import examine_in_workers\n"
        "from plmcl.data.images import Recipe\n"
        "recipe = Recipe(32, (0, 0, 0), 50_000_000)\n"
        "names = ['a.png', *['slow.jpg'] * 8]\n"
        "for _ in examine_in_workers(Path(sys.argv[1]), names, recipe):\n"
        "    print('found', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(Path(pool.__file__).parents[3])},
    )
    process.stdout.readline()
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert workers
    process.send_signal(how)
    process.wait(20)
    process.stdout.close()
    deadline = time.monotonic() + 5
    while any(is_alive(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(is_alive(worker) for worker in workers)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
