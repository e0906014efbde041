"""Multi-label image tagging from almost no annotation."""

import os

__version__ = "0.1.0"

# ONNX Runtime reports its use to its maker, and reads this only while it is loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
