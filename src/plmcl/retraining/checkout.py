"""The checkout that retrainings run in: a git worktree of its own, kept from one to the next.

The user's checkout is not touched: its branch, its index, its files and its DVC outs stay as they
are. What is worth sharing is shared by absolute path: DVC's cache, MLflow's store, cached features
and examinations.
"""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
from ruamel.yaml import YAML

from plmcl.data.listing import first_five
from plmcl.errors import PlmclError
from plmcl.params import read_yaml
from plmcl.retraining.git import git, refs
from plmcl.stages.paths import Paths

logger = logging.getLogger(__name__)

PRODUCTION = "production"  # the branch of what was promoted last
SECONDS_TO_STOP = 30.0
# Kept by the main checkout, for all.
_SHARED = ("features", "examined")


class Checkout:
    """The worktree below .plmcl/retraining.

    Args:
        root: Of the project: a git repository with DVC in it.

    Attributes:
        root: Of the project.
        path: Of the worktree.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.path = self.root / ".plmcl" / "retraining" / "checkout"
        self._child = self.path.with_name("child.json")

    @property
    def head(self) -> str:
        """The commit that the worktree stands on; "" if there is no worktree yet."""
        return git(self.path, "rev-parse", "HEAD") if (self.path / ".git").exists() else ""

    @property
    def is_clean(self) -> bool:
        """Whether it holds nothing that is not committed."""
        return not git(self.path, "status", "--porcelain")

    def open(self, branch: str) -> str:
        """Put the worktree on a new branch: the user's commit, with the promoted one merged in.

        Returns:
            The user's commit, 40 hex digits.

        Raises:
            PlmclError: This is no git repository with a commit, or the two cannot be merged.
        """
        base = user_commit(self.root)
        self._stop_orphan()
        edited = git(self.root, "diff", "--name-only", "HEAD").splitlines()
        if edited:
            logger.warning("not committed, so not part of the retraining: %s", first_five(edited))
        if not (self.path / ".git").exists():
            git(self.root, "worktree", "prune")
            git(self.root, "worktree", "add", "--force", "--detach", str(self.path), base)
        self._abandon_changes()
        git(self.path, "checkout", "--quiet", "--force", "-B", branch, base)
        if refs(self.root, f"refs/heads/{PRODUCTION}"):
            self._merge(PRODUCTION)
        self._share()
        self._have_inputs()
        return base

    def _abandon_changes(self) -> None:
        # A merge that a kill left half made, and the files of a round that was given up.
        with suppress(PlmclError):
            git(self.path, "merge", "--abort")
        git(self.path, "reset", "--quiet", "--hard")
        git(self.path, "clean", "--quiet", "--force", "-d")

    def _merge(self, branch: str) -> None:
        merge = ["merge", "--quiet", "--no-edit", "-X", "theirs", branch]
        try:
            git(self.path, *_identity(self.path), *merge)
            # Whole and not in pieces; DVC compares it with what is there.
            git(self.path, "checkout", "--quiet", branch, "--", "dvc.lock")
        except PlmclError as error:
            git(self.path, "merge", "--abort")
            raise PlmclError(
                f"branch {branch} does not merge into the commit that is checked out in "
                f"{self.root}: merge it there yourself (git merge {branch}): {error}"
            ) from None

    def _share(self) -> None:
        for name in _SHARED:
            shared, link = self.root / ".plmcl" / name, self.path / ".plmcl" / name
            shared.mkdir(parents=True, exist_ok=True)
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(shared, target_is_directory=True)
        # An out is a link to its file in the cache: a copy of all raw images would be a second one.
        config = f"[cache]\n    dir = {self._cache()}\n    type = reflink,hardlink,copy\n"
        (self.path / ".dvc" / "config.local").write_text(config, encoding="utf-8")

    def _cache(self) -> Path:
        done = _run([_dvc(), "cache", "dir"], cwd=self.root)
        return (self.root / done.strip()).resolve()

    def _have_inputs(self) -> None:
        values = read_yaml(self.path / "params.yaml")
        inputs = values["data"]["path"]
        tracked = f"{inputs}.dvc"
        if (self.path / tracked).exists():
            _run([_dvc(), "checkout", "--quiet", tracked], cwd=self.path)
        elif (self.root / inputs).exists() and not (self.path / inputs).exists():
            raise PlmclError(
                f"data.path: {inputs} is in {self.root} and tracked neither by git nor by DVC, so "
                "a retraining, which runs in a checkout of its own, does not have it: "
                f"`dvc add {inputs}` and commit {tracked}, or give its absolute path"
            )

    def set_params(self, changes: Mapping[str, object]) -> None:
        """Set values of the worktree's params.yaml, by dotted path; comments stay."""
        path = self.path / "params.yaml"
        yaml = YAML()
        values = yaml.load(path.read_text(encoding="utf-8"))
        for dotted, value in changes.items():
            *parents, last = dotted.split(".")
            section = values
            for parent in parents:
                section = section[parent]
            section[last] = value
        with path.open("w", encoding="utf-8") as file:
            yaml.dump(values, file)

    def track(self, folder: Path) -> None:
        """Have DVC track a version's folder in the worktree, in place of its earlier versions."""
        for other in sorted(folder.parent.glob("v*.dvc")):
            if other.stem != folder.name:
                other.unlink()
        _run([_dvc(), "add", "--quiet", str(folder.relative_to(self.path))], cwd=self.path)

    def commit(self, message: str) -> str:
        """Commit all that git does not ignore; the commit, also where nothing had changed."""
        git(self.path, "add", "--all")
        if not self.is_clean:
            git(self.path, *_identity(self.path), "commit", "--quiet", "-m", message)
        return self.head

    def paths(self, source: str) -> Paths:
        """Where everything is in the worktree."""
        return Paths.of_project(self.path, source)

    def reproduce(self, log: Path, say: Callable[[str], None]) -> None:
        """Run `dvc repro`; what it prints goes to `log` and, line by line, to `say`.

        A signal that ends this process ends DVC and its stages first: they keep their checkpoints.

        Raises:
            PlmclError: A stage failed; the message has its last words and names the log.
        """
        self.run([_dvc(), "repro"], log, say)

    def run(self, command: list[str], log: Path, say: Callable[[str], None]) -> None:
        """Run a command in the worktree, on its code; `reproduce` says how."""
        log.parent.mkdir(parents=True, exist_ok=True)
        last: list[str] = []
        with (
            log.open("a", encoding="utf-8") as file,
            subprocess.Popen(  # noqa: S603
                command,
                cwd=self.path,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            ) as process,
        ):
            try:
                self._remember(process.pid)
                assert process.stdout is not None
                for line in process.stdout:
                    file.write(line)
                    file.flush()
                    if text := line.strip():
                        last = [*last, text][-4:]
                        say(text)
                process.wait()
            except BaseException:
                _stop(process.pid)
                raise
            finally:
                self._child.unlink(missing_ok=True)
        if process.returncode:
            words = " / ".join(last) or f"exit code {process.returncode}"
            raise PlmclError(f"{' '.join(command[-2:])} failed: {words}; all it said: {log}")

    def _remember(self, pid: int) -> None:
        # For the next process, in case this one is killed.
        started = psutil.Process(pid).create_time()
        self._child.write_text(json.dumps({"pid": pid, "started": started}), encoding="utf-8")

    def _stop_orphan(self) -> None:
        """End what a process that was killed had started here: two would write the same files."""
        try:
            child = json.loads(self._child.read_text(encoding="utf-8"))
            if psutil.Process(child["pid"]).create_time() == child["started"]:
                logger.warning("ended: process %d of an earlier retraining", child["pid"])
                _stop(child["pid"])
        except (OSError, ValueError, KeyError, psutil.NoSuchProcess):
            pass
        self._child.unlink(missing_ok=True)

    def _environment(self) -> dict[str, str]:
        own = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": "src",
        }
        own["MLFLOW_TRACKING_URI"] = (
            os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{self.root / 'mlflow.db'}"
        )
        return os.environ | own


def user_commit(root: Path) -> str:
    """The commit that is checked out in a project.

    Raises:
        PlmclError: The project is no git repository, or has no commit.
    """
    try:
        return git(root, "rev-parse", "--verify", "HEAD")
    except PlmclError:
        raise PlmclError(
            f"{root}: not a git repository with a commit: retraining keeps what it did on a branch "
            "(git init, git add -A, git commit)"
        ) from None


def tag(root: Path, name: str, commit: str, message: str) -> None:
    """Tag a commit, in place of a tag of that name."""
    git(root, *_identity(root), "tag", "--force", "-a", name, commit, "-m", message)


def fast_forward(root: Path, commit: str) -> str:
    """Move the user's branch on to a commit that follows it; why not, or "".

    Git refuses where that would change a file that the user has edited.
    """
    try:
        git(root, "merge", "--ff-only", "--quiet", commit)
        _run([_dvc(), "checkout", "--quiet", "--allow-missing"], cwd=root)
    except PlmclError as error:
        return str(error)
    return ""


def _identity(folder: Path) -> list[str]:
    # Of the commits; a service's account often has none.
    try:
        git(folder, "config", "user.email")
    except PlmclError:
        return ["-c", "user.name=plmcl", "-c", "user.email=plmcl@localhost"]
    return []


def _stop(group: int) -> None:
    # The whole group: DVC does not pass a signal on to its stage.
    members = [psutil.Process(group)] if psutil.pid_exists(group) else []
    for process in list(members):
        with suppress(psutil.Error):
            members += process.children(recursive=True)
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(group, number)
        if not psutil.wait_procs(members, timeout=SECONDS_TO_STOP)[1]:
            return


def _dvc() -> str:
    return str(Path(sys.executable).with_name("dvc"))


def _run(command: list[str], cwd: Path) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            command, cwd=cwd, check=True, capture_output=True, text=True, errors="replace"
        )
    except FileNotFoundError:
        raise PlmclError(f"{command[0]}: not found; it is needed for retraining") from None
    except subprocess.CalledProcessError as error:
        said = " ".join((error.stderr or error.stdout).split())
        name = " ".join([Path(command[0]).name, *command[1:]])
        raise PlmclError(f"{name}: {said[-300:] or f'exit code {error.returncode}'}") from None
    return done.stdout.strip()
