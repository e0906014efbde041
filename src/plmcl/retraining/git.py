"""Git, as a program: what it answers, or its own words as the reason why not."""

import subprocess
from pathlib import Path

from plmcl.errors import PlmclError


def git(root: Path, *arguments: str) -> str:
    """What `git` prints in a folder, without white space around it.

    Raises:
        PlmclError: There is no git, or it failed; the message ends with what it said.
    """
    try:
        done = subprocess.run(  # noqa: S603
            ["git", "-C", str(root), *arguments],  # noqa: S607
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except FileNotFoundError:
        raise PlmclError("git: not found; it keeps what was promoted") from None
    except subprocess.CalledProcessError as error:
        said = " ".join((error.stderr or error.stdout).split())
        raise PlmclError(f"git {' '.join(arguments)}: {said[-300:]}") from None
    return done.stdout.strip()


def refs(root: Path, *patterns: str) -> dict[str, str]:
    """Branches and tags whose full names match: the name, and the commit that it stands for."""
    # A tag with a message is an object of its own; what it is about is the commit.
    form = "--format=%(refname) %(objectname) %(*objectname)"
    lines = git(root, "for-each-ref", form, *patterns).splitlines()
    return {words[0]: words[-1] for words in map(str.split, lines)}


def checked_out_in(root: Path, branch: str) -> str:
    """The working tree, of all that share the repository, that has a branch; "" if none has."""
    return git(root, "for-each-ref", "--format=%(worktreepath)", f"refs/heads/{branch}")
