#!/usr/bin/env python3
"""The one entrance to Daylight: checks the Python, enters the environment, runs the command.

This file is read by Pythons that are too old for the rest, so that they can say so: it keeps to
syntax that Python 2.7 and 3 share.
"""

import os
import sys

LEAST_PYTHON = (3, 11)


def obstacle(version, platform):
    # type: (tuple[int, ...], str) -> str
    """One line on why Daylight cannot run here; empty when it can."""
    if version[:2] < LEAST_PYTHON:
        return "Daylight needs Python %d.%d or newer; this is Python %d.%d (%s)." % (
            LEAST_PYTHON[0],
            LEAST_PYTHON[1],
            version[0],
            version[1],
            sys.executable,
        )
    if platform != "posix":
        return "Daylight runs on Linux and macOS; on Windows use WSL."
    return ""


def main():
    # type: () -> int
    """The command ran; the process ends with its exit code."""
    line = obstacle(tuple(sys.version_info[:3]), os.name)
    if line:
        sys.stderr.write(line + "\n")
        return 1
    from scheduler_app.launch import environment

    try:
        environment.enter(environment.wanted(sys.argv[1:], os.environ))
    except environment.SetupFailed as error:
        sys.stderr.write("%s\n" % error)
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted; the next command makes the environment anew.\n")
        return 130
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scheduler_app.config.settings")
    from scheduler_app.launch import command_line

    return command_line.run(sys.argv)


if __name__ == "__main__":
    sys.exit(main())
