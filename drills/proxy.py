"""Debian's nginx in front of a drill's sites, with the configuration of docs/nginx.conf."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from drills.lab import until
from drills.node import ROOT
from e2e.running import free_port

CONFIGURATION = ROOT / "docs" / "nginx.conf"
START_SECONDS = 20.0

_PATH = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin"
"""Debian has it where only root's PATH leads."""

_AROUND = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{inner}}}
"""


class NoProxy(Exception):
    """nginx is not installed; the message says how to install it."""


def configured(text: str, values: Mapping[str, str]) -> str:
    """The documented configuration with a machine's own values.

    Raises:
        ValueError: If a value's place is not in it.
    """
    for place, value in values.items():
        if place not in text:
            raise ValueError(f"{CONFIGURATION.name} has no line with {place!r} any more")
        text = text.replace(place, value)
    return text


def installed() -> str:
    """The path of nginx.

    Raises:
        NoProxy: If it is not installed.
    """
    if nginx := shutil.which("nginx", path=_PATH):
        return nginx
    raise NoProxy("nginx is not installed (Debian: apt install nginx-light)")


@contextmanager
def proxy(nginx: str, folder: Path, sites: Sequence[str]) -> Iterator[tuple[str, ssl.SSLContext]]:
    """Serve sites as one, over HTTPS on 127.0.0.1.

    Args:
        nginx: Its path.
        folder: A new folder for what nginx writes.
        sites: The addresses of the sites.

    Yields:
        The address, and a context that trusts its certificate.
    """
    folder.mkdir()
    certificate, key = _certificate(folder)
    port = free_port()
    inner = configured(
        CONFIGURATION.read_text(),
        {
            "server 127.0.0.1:8000;": " ".join(f"server {urlsplit(s).netloc};" for s in sites),
            "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
            "listen 80;": f"listen 127.0.0.1:{free_port()};",
            "/etc/ssl/memorymark.pem": str(certificate),
            "/etc/ssl/memorymark.key": str(key),
        },
    )
    file = folder / "nginx.conf"
    file.write_text(_AROUND.format(folder=folder, inner=inner))
    # Its workers run as another user unless it is told otherwise, and could not write here.
    process = subprocess.Popen([nginx, "-c", file, "-p", folder, "-g", "user root;"])
    try:
        if not until((folder / "nginx.pid").exists, START_SECONDS):
            raise RuntimeError((folder / "nginx.log").read_text())
        yield f"https://127.0.0.1:{port}", ssl.create_default_context(cafile=str(certificate))
    finally:
        process.terminate()
        process.wait()


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    order = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    order += ["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    order += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key)]
    subprocess.run([*order, "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key
