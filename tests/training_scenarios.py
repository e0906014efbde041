"""What a training does in a process of its own, as a command of which the parts are announced."""

import resource
import signal
import sys
from contextlib import suppress

from training_kills import METHOD, SETTING, say_places

from plmcl.checkpoint import Checkpoints
from plmcl.stages import train
from plmcl.stages.entry import run_stage

EPOCHS = 4  # of both phases of the project of `test_training_kills`


def training():
    """The stage, in the current folder."""
    say_places()
    sys.argv = ["train", SETTING, METHOD]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run_stage(train.main)


def dropping_a_signal():
    """The stage that gets SIGTERM where what a handler raises is dropped: after its last commit."""
    save = Checkpoints.save

    def saving(self, epoch, *state):
        save(self, epoch, *state)
        if epoch == EPOCHS:
            with suppress(SystemExit):
                signal.raise_signal(signal.SIGTERM)

    Checkpoints.save = saving
    training()


def without_room():
    """The stage where no file can grow to the size of its checkpoint."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, hard))
    training()
