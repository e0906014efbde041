"""Thousands of damaged files through the readers of images and of labels, and what came of them.

`fuzz_images` and `fuzz_labels` each run in a process of its own, so that a crash, a hang, a
traceback and memory are seen from outside.
"""

import faulthandler
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
SECONDS_A_LABEL_FILE = 20
SECONDS_A_FILE = 0.5  # on average; twenty times what it takes


def fuzz_images(count: int, seed: int) -> dict[str, Any]:
    """Damage good images of every format, and examine and load them.

    Returns:
        tried, usable, statuses (status -> number), seconds, parent_mb and worker_mb (the largest
        that any process became).

    Raises:
        AssertionError: A crash, a hang, a traceback; a file without a status of its own; or one
            that training would take and serving would not.
    """
    return _alone("images", count, seed)


def fuzz_labels(count: int, seed: int) -> dict[str, Any]:
    """Damage good label files of every format, and read them.

    Returns:
        tried, usable, refused (format -> number), seconds, slowest_seconds (of one file), and
        parent_mb (the largest that the process became).

    Raises:
        AssertionError: A crash, a hang, or anything but labels and `PlmclError`.
    """
    return _alone("labels", count, seed)


def _alone(kind: str, count: int, seed: int) -> dict[str, Any]:
    command = [sys.executable, __file__, kind, str(count), str(seed)]
    try:
        done = subprocess.run(
            command,
            env={"PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60 + SECONDS_A_FILE * count,
        )
    except subprocess.TimeoutExpired as expired:
        raise AssertionError(f"{kind}: hung: {expired.stderr!r}") from None
    assert done.returncode == 0, f"{kind}: exit {done.returncode}: {done.stderr[-4000:]}"
    # libtiff says what it thinks of a file.
    assert "Traceback" not in done.stderr, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _images(count: int, seed: int, folder: Path) -> dict[str, Any]:
    from data.image_mutations import mutate_image

    from plmcl.data.decoding.problems import NO_MEMORY
    from plmcl.data.doctor.examination import examine_all
    from plmcl.data.images import ImageProblem, Recipe, load
    from plmcl.data.statuses import STATUSES, USABLE

    rng = random.Random(seed)
    good = _good_images()
    names = [f"{number:06d}.jpg" for number in range(count)]
    for name in names:
        (folder / name).write_bytes(mutate_image(rng.choice(good), good, rng))
    recipe = Recipe(size=64, background=(255, 255, 255), max_pixels=50_000_000)
    start = time.monotonic()
    found = examine_all(folder, names, recipe, record=None)
    seconds = time.monotonic() - start
    parent_mb = _peak_mb()
    worker_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    assert found["path"].tolist() == names
    assert set(found["status"]) <= set(STATUSES)
    assert ((found["reason"] == "") == (found["status"] == "ok")).all()
    assert not found["reason"].str.contains("\n").any()
    warnings.simplefilter("ignore")
    for name, status, reason in found[["path", "status", "reason"]].itertuples(index=False):
        faulthandler.dump_traceback_later(60, exit=True)
        try:
            load(folder / name, recipe)
            served = "ok"
        except ImageProblem as problem:
            served = problem.status
        # A worker has less memory and time than we have.
        if reason != NO_MEMORY and not reason.startswith(("decoding took", "the decoder crashed")):
            assert served == ("ok" if status in USABLE else status), (name, seed, status, served)
    faulthandler.cancel_dump_traceback_later()
    return {
        "tried": count,
        "usable": int(found["status"].isin(USABLE).sum()),
        "statuses": dict(sorted(Counter(found["status"]).items())),
        "crashes_of_a_decoder": int(found["reason"].str.startswith("the decoder crashed").sum()),
        "given_up_for_time": int(found["reason"].str.startswith("decoding took").sum()),
        "seconds": round(seconds, 1),
        "parent_mb": parent_mb,
        "worker_mb": worker_mb,
    }


def _good_images() -> list[bytes]:
    from data import image_bytes as made
    from data.image_bytes import as_, frames

    makers = [
        *(made.jpeg, as_("JPEG", progressive=True), as_("JPEG", "L"), made.turned(6)),
        *(made.four_inks, made.ycck, frames("MPO"), as_("JPEG", icc_profile=b"x" * 200)),
        *(made.png, as_("PNG", "P"), as_("PNG", "RGBA"), as_("PNG", "1"), made.deep_png),
        *(made.png_with((b"tEXt", b"Title\0of a picture")), frames("PNG")),
        *(as_("WEBP"), as_("WEBP", lossless=True), as_("WEBP", "RGBA"), frames("WEBP")),
        *(as_("GIF"), as_("GIF", "L"), frames("GIF"), as_("BMP"), as_("BMP", "P"), as_("BMP", "1")),
        *(as_("TIFF"), as_("TIFF", compression="tiff_lzw"), as_("TIFF", compression="jpeg")),
        *(as_("TIFF", compression="tiff_adobe_deflate"), as_("TIFF", "1", compression="group4")),
        *(as_("TIFF", "CMYK"), as_("TIFF", "PA"), as_("TIFF", "LAB"), frames("TIFF")),
        *(as_("AVIF"), as_("AVIF", "RGBA"), frames("AVIF")),
    ]
    return [maker(made.drawn(seed)) for seed, maker in enumerate(makers)]


def _labels(count: int, seed: int, folder: Path) -> dict[str, Any]:
    from data.formats.test_mutations import IMAGES, SOUND
    from data.mutations import mutate

    from plmcl.data.formats import read_labels
    from plmcl.data.formats.base import ImageIndex, LabelFile, Options
    from plmcl.errors import PlmclError

    rng = random.Random(seed)
    refused: Counter[str] = Counter()
    slowest = 0.0
    start = time.monotonic()
    for number in range(count):
        name = rng.choice(list(SOUND))
        format = name.split()[0]
        files = dict(SOUND[name])
        damaged = rng.choice(list(files))
        files[damaged] = mutate(files[damaged], rng)
        labels = folder / str(number)
        labels.mkdir()
        for file, data in files.items():
            (labels / file).write_bytes(data)
        path = labels if format in ("voc", "yolo") else labels / damaged
        options = Options(
            rng.choice(["refuse", "negative", "unknown"]),
            rng.choice(["keep", "drop"]),
            rng.choice(["negative", "ignore"]),
        )
        faulthandler.dump_traceback_later(SECONDS_A_LABEL_FILE, exit=True)
        before = time.monotonic()
        as_said = rng.choice(["auto", format])
        try:
            found = read_labels(path, ImageIndex(IMAGES), options, format=as_said)
        except PlmclError:
            refused[format] += 1
        else:
            assert isinstance(found, LabelFile)
            assert set(found.labels["image_id"]) <= found.named <= set(IMAGES)
            assert set(found.labels["value"]) <= {0, 1}
        slowest = max(slowest, time.monotonic() - before)
        shutil.rmtree(labels)
    faulthandler.cancel_dump_traceback_later()
    return {
        "tried": count,
        "usable": count - refused.total(),
        "refused": dict(sorted(refused.items())),
        "seconds": round(time.monotonic() - start, 1),
        "slowest_seconds": round(slowest, 2),
        "parent_mb": _peak_mb(),
    }


def _peak_mb() -> int:
    # Of this process alone: getrusage also knows how large the one was that started it.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def main() -> None:
    """Fuzz one kind in this process, and print what came of it as JSON."""
    kind, count, seed = sys.argv[1:]
    run: Callable[[int, int, Path], dict[str, Any]] = {"images": _images, "labels": _labels}[kind]
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(int(count), int(seed), Path(folder))))


if __name__ == "__main__":
    main()
