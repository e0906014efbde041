"""The page to drop a photo on: one file that loads nothing from elsewhere."""

import base64
import hashlib
import re
from importlib import resources


def page() -> tuple[str, str]:
    """The HTML, and the policy that lets a browser run what is in it and nothing else."""
    html = resources.files("plmcl.serving").joinpath("page.html").read_text(encoding="utf-8")
    script, style = (
        " ".join(_hash(body) for body in re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL))
        for tag in ("script", "style")
    )
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; img-src blob: data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html, policy


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
