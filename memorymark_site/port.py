"""Check that the port is free, which ``make run`` does before it starts anything."""

import errno
import socket
import sys


def problem(host: str, port: str) -> str:
    """Why the site cannot listen there, in one line; empty if it can."""
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        return f"PORT={port} is not a port; use a number from 1 to 65535, such as PORT=8000"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As gunicorn does, so that a connection still closing from the last run is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return f"cannot listen on {host}, port {port}: {error.strerror}"
            other = int(port) + 1 if int(port) < 65535 else 8000
            return f"port {port} is taken (MemoryMark running already?); try: make run PORT={other}"
    return ""


if __name__ == "__main__":
    sys.exit(problem(*sys.argv[1:3]) or 0)
