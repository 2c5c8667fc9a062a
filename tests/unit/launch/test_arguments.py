from __future__ import annotations

import os
from pathlib import Path

import pytest

from scheduler_app.launch import arguments
from scheduler_app.launch.environment import ROOT


def test_without_flags_there_is_one_of_each_on_port_8000() -> None:
    options = arguments.parse([], {})
    assert (options.port, options.data_dir) == (8000, ROOT / ".daylight")
    assert (options.schedulers, options.triggerers, options.concurrency) == (1, 1, 2)
    assert (options.flows, options.examples, options.admin_password) == ((), True, "")
    assert options.executor == "celery"


def test_the_local_executor_may_make_a_process_per_task() -> None:
    options = arguments.parse(["--executor", "local", "--concurrency", "0"], {})
    assert (options.executor, options.concurrency) == ("local", 0)


def test_every_flag_is_a_variable_too(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    environ = {
        "DAYLIGHT_PORT": "8100",
        "DAYLIGHT_DATA_DIR": str(tmp_path / "data"),
        "DAYLIGHT_FLOWS": f"{one}{os.pathsep}{two}",
        "DAYLIGHT_NO_EXAMPLES": "1",
        "DAYLIGHT_SCHEDULERS": "2",
        "DAYLIGHT_TRIGGERERS": "3",
        "DAYLIGHT_CONCURRENCY": "4",
        "DAYLIGHT_EXECUTOR": "local",
        "DAYLIGHT_ADMIN_PASSWORD": "secret",
    }
    by_variable = arguments.parse([], environ)
    by_flag = arguments.parse(
        [
            *("--port", "8100", "--data-dir", str(tmp_path / "data"), "--flows", str(one)),
            *("--flows", str(two), "--no-examples", "--schedulers", "2", "--triggerers", "3"),
            *("--concurrency", "4", "--executor", "local", "--admin-password", "secret"),
        ],
        {},
    )
    assert by_variable == by_flag
    assert by_flag.flows == (one, two)


def test_a_flag_wins_over_its_variable() -> None:
    assert arguments.parse(["--port", "8200"], {"DAYLIGHT_PORT": "8100"}).port == 8200


def test_the_folders_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flows").mkdir()
    options = arguments.parse(["--data-dir", "data", "--flows", "flows"], {})
    assert (options.data_dir, options.flows) == (tmp_path / "data", (tmp_path / "flows",))


@pytest.mark.parametrize(
    ("argv", "environ", "part"),
    [
        (["--port", "x"], {}, "--port: 'x' is no port between 1 and 65535"),
        ([], {"DAYLIGHT_PORT": "70000"}, "--port: '70000' is no port"),
        (["--schedulers", "0"], {}, "--schedulers: '0' is no number between 1 and 64"),
        (["--executor", "lokal"], {}, "there is no executor 'lokal'; choose celery or local"),
        ([], {"DAYLIGHT_EXECUTOR": "ray"}, "--executor: there is no executor 'ray'"),
        (["--concurrency", "-1"], {}, "--concurrency: '-1' is no number between 0 and 512"),
        (["--concurrency", "0"], {}, "--concurrency 0 (a process per task) needs --executor local"),
        (["--flows", "/does/not/exist"], {}, "--flows: /does/not/exist is not a folder"),
        ([], {"DAYLIGHT_FLOWS": "/does/not/exist"}, "--flows: /does/not/exist is not a folder"),
        (["--no-such-flag"], {}, "unrecognized arguments: --no-such-flag"),
    ],
)
def test_a_wrong_flag_ends_with_one_line_that_names_it(
    argv: list[str], environ: dict[str, str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments.parse(argv, environ)
    assert ended.value.code == 2
    assert part in capsys.readouterr().err.splitlines()[-1]
