"""Multi-label image tagging from almost no annotation."""

__version__ = "0.1.0"
