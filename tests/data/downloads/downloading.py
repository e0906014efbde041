"""A file to be downloaded, and `fetch` with short times."""

import hashlib
import random
import tempfile

import pytest
from data.downloads.http_server import Answer

from plmcl.data.downloads import Remote, fetch
from plmcl.errors import PlmclError

BODY = random.Random(0).randbytes(300_000)
MD5 = hashlib.md5(BODY).hexdigest()
SHA256 = hashlib.sha256(BODY).hexdigest()
GOOD = Answer(BODY)


def remote(*urls, name="images.zip", size=300_000, md5=MD5, sha256=None):
    return Remote(name, urls, size=size, md5=md5, sha256=sha256)


def quick(wanted, folder, **options):
    """Fetch with few retries and short waits, and without the certificates of the system.

    The clock may stand still for a second in this process, as in any that shares its cores.
    """
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as empty:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", empty)  # reading the system's takes longer than a test
        return fetch(wanted, folder, **({"retries": 3, "timeout_s": 4.0} | options))


def refusal(wanted, folder, **options):
    with pytest.raises(PlmclError) as caught:
        quick(wanted, folder, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def names(folder):
    return sorted(path.name for path in folder.iterdir())
