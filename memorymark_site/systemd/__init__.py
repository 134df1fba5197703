"""``memorymark site install --systemd``: units, a configuration file and a user, in one command."""

from __future__ import annotations

import argparse
import os
import pwd
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from string import Template

DEFAULT_CONFIG = Path("/etc/memorymark.env")
OF_A_WORKER = ("memorymark.target", "memorymark-worker.service")
OF_THE_SITE = (
    "memorymark-web.service",
    "memorymark-alarms.service",
    "memorymark-alarms.timer",
    "memorymark-backup.service",
    "memorymark-backup.timer",
)
_TEMPLATES = Path(__file__).parent


def add_install_flags(program: str) -> argparse.ArgumentParser:
    """The flags of ``install``."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Puts units for systemd in place; run it as root. What exists already, the "
        "configuration file and the user, stays as it is.",
        allow_abbrev=False,
    )
    parser.add_argument("--systemd", action="store_true", required=True)
    parser.add_argument(
        "--worker-only",
        action="store_true",
        help="for a GPU machine: without the site; the configuration names its database and key",
    )
    parser.add_argument("--user", default="memorymark", help="who runs it (default %(default)s)")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("/etc/systemd/system"),
        metavar="FOLDER",
        help="where the units go (default %(default)s)",
    )
    parser.add_argument(
        "--config",
        type=Path,
        default=DEFAULT_CONFIG,
        metavar="FILE",
        help="the configuration file (default %(default)s)",
    )
    return parser


def install(options: argparse.Namespace) -> int:
    """Write what is missing, and say what to do next.

    Returns:
        The exit status: 1 if something cannot be written or the user cannot be created.
    """
    units = OF_A_WORKER if options.worker_only else OF_A_WORKER + OF_THE_SITE
    try:
        group = _group_of(options.user)
        if not options.config.exists():
            _write_config(options.config, group)
        for unit in units:
            (options.folder / unit).write_text(unit_text(unit, options.user, options.config))
    except OSError as error:
        sys.stderr.write(f"error: {error}; run it as root, or name another --folder and --config\n")
        return 1
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"error: no user {options.user}: {error.stderr.strip()}\n")
        return 1
    sys.stdout.write(
        f"{len(units)} units are in {options.folder}. Look at {options.config}, then run:\n"
        "systemctl daemon-reload && systemctl enable --now memorymark.target\n"
    )
    if not options.worker_only:
        sys.stdout.write("The set-up link is then in: journalctl -u memorymark-web\n")
    return 0


def unit_text(unit: str, user: str, config: Path) -> str:
    """One unit for this installation."""
    program = Path(sys.executable).with_name("memorymark")
    return Template((_TEMPLATES / unit).read_text()).substitute(
        command=f"{program} site --config {config}", user=user
    )


def _group_of(user: str) -> int:
    """The group of a user, who is created as one of the system's if there is none."""
    try:
        return pwd.getpwnam(user).pw_gid
    except KeyError:
        useradd = shutil.which("useradd") or "/usr/sbin/useradd"
        command = [useradd, "--system", "--user-group", "--home-dir", "/var/lib/memorymark", user]
        subprocess.run(command, check=True, capture_output=True, text=True)
        return pwd.getpwnam(user).pw_gid


def _write_config(file: Path, group: int) -> None:
    """A configuration that works at once; only root and the service may read it."""
    text = Template((_TEMPLATES / "memorymark.env").read_text()).substitute(
        secret_key=secrets.token_urlsafe(48)
    )
    file.touch(mode=0o640, exist_ok=False)
    os.chown(file, -1, group)
    file.write_text(text, encoding="utf-8")
