"""Processes that have imported what takes longest, each a fork of one that has no other thread.

A fork of pytest's own process can hang: it inherits the locks that other threads held.
"""

import multiprocessing

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "lightning_fabric",
        "mlflow.store.tracking.sqlalchemy_store",
        "pandera.pandas",
        "timm",
        "torch.distributed",
        "torchvision",
    ]
)
