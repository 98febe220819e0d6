"""Starts the `libris` binary that this package installed."""

import os
import subprocess
import sys
import sysconfig


def binary():
    """The path of the binary: in the folder of this environment's scripts, or of those of the user."""
    name = "libris.exe" if os.name == "nt" else "libris"
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    folders.append(sysconfig.get_path("scripts", "nt_user" if os.name == "nt" else "posix_user"))
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    sys.exit("error: the program `libris` is not installed\nhint: reinstall the package `libris-mcp`")


def main():
    """Runs the program with the arguments of this process."""
    arguments = [binary(), *sys.argv[1:]]
    if os.name == "nt":
        try:
            sys.exit(subprocess.run(arguments).returncode)
        except KeyboardInterrupt:
            sys.exit(2)
    os.execv(arguments[0], arguments)
