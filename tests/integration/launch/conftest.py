from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data folder with a short path that an unprivileged account may pass through."""
    folder = Path(tempfile.mkdtemp(prefix="daylight-test-", dir="/tmp"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)
