"""PostgreSQL's files as a first start leaves them: made once for a test run, and copied.

``initdb`` and every migration cost some seconds of a core, and a run of all tests has dozens of
clusters. Whoever tests a first start itself does without.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from scheduler_app.launch import embedded

# A folder of the whole run, which its processes share; whoever names it removes it.
FOLDER: Final = "TESTS_FOLDER"
_ROOT: Final = Path(__file__).resolve().parents[1]
# Of the data folder, what belongs to the cluster.
_PARTS: Final = ("postgres", "postgres-password")


def fill(data_dir: Path) -> None:
    """The empty data folder has a cluster whose database has the schema of this code."""
    made = _made()
    data_dir.mkdir(parents=True, exist_ok=True)
    subprocess.run(  # with owners: as root the cluster is not ours
        ["cp", "-a", *(str(made / part) for part in _PARTS), str(data_dir)], check=True
    )


def _made() -> Path:
    """Where the original is; made by the first who asks, while the others wait."""
    folder = Path(os.environ.get(FOLDER) or tempfile.gettempdir())
    original = folder / "original"
    with (folder / "original.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not original.exists():
            new = folder / "original.new"
            _make(new)
            new.rename(original)
    return original


def _make(data_dir: Path) -> None:
    data_dir.mkdir()
    data_dir.chmod(0o711)
    server = embedded.start_postgres(data_dir, throw_away=True)
    try:
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
            cwd=_ROOT,
            env={**os.environ, "DATABASE_URL": server.url, "DAYLIGHT_DATA_DIR": str(data_dir)},
            check=True,
        )
    finally:
        server.stop()
