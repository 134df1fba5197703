"""Bounds of an engine's processes, which read members' uploads: account, variables, resources.

No code of a member runs there. If a library that reads a config can be made to run some, this is
what it meets.
"""

from __future__ import annotations

import os
import pwd
import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings

from engine.hub import SWITCH
from engine.traces.trace_files import FOLDER_VARIABLE

MAX_PROCESSES = 16_384
"""Processes and threads of the account, all together; a fork bomb ends there. An engine has some
hundred, most of them threads of torch. The kernel does not hold root to it."""

_FIRST_TO_DIE = "1000"
"""The highest score: a kernel that is out of memory ends an engine, not site or database."""

_OF_THE_ENGINE = frozenset({
    # Paths of programs and files
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LANG", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
    "LD_PRELOAD", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "CC", "CXX",
    # Access to the hub
    SWITCH, "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
    "all_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "ENGINE_CALIBRATION", FOLDER_VARIABLE,
})  # fmt: skip
_OF_ITS_LIBRARIES = (
    "LC_", "XDG_", "PYTHON", "PYTORCH_", "TORCH", "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "NCCL_",
    "GLOO_", "TRITON_", "HF_", "HUGGINGFACE_", "TRANSFORMERS_", "TOKENIZERS_", "OMP_", "MKL_",
    "KMP_", "OPENBLAS_", "MALLOC_",
)  # fmt: skip
"""Prefixes of its libraries' variables. They include HF_TOKEN, which is meant for the engine."""


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The environment for the engine: only the variables that it and its libraries read.

    This is an allowlist, so that no secret of the site, now or in the future, reaches a process
    that reads members' uploads.
    """
    kept = {
        name: value
        for name, value in given.items()
        if name in _OF_THE_ENGINE or name.startswith(_OF_ITS_LIBRARIES)
    }
    if account := _account():  # which may not write into the data folder
        kept |= {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name}
    else:
        kept = {FOLDER_VARIABLE: str(settings.DATA_DIR / "traces")} | kept
    return kept | {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}


def account() -> dict[str, Any]:
    """Options of :class:`subprocess.Popen` for the account that the engine runs as.

    Raises:
        KeyError: The machine has no such account; ``manage.py check`` says so first.
    """
    found = _account()
    if found is None:
        return {}
    groups = os.getgrouplist(found.pw_name, found.pw_gid)
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": groups}


def limit_resources() -> None:
    """Bound what this process and its children take of the machine; called between fork and exec.

    There are no core dumps, since those hold what members uploaded.
    """
    for kind, limit in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_NPROC, MAX_PROCESSES)):
        _, hard = resource.getrlimit(kind)
        most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (most, most))


def offer_to_kernel(pid: int) -> None:
    """Have a kernel that is out of memory end this engine first; Linux only."""
    with suppress(FileNotFoundError, ProcessLookupError):
        Path(f"/proc/{pid}/oom_score_adj").write_text(_FIRST_TO_DIE)


def _account() -> pwd.struct_passwd | None:
    return pwd.getpwnam(settings.ENGINE_USER) if settings.ENGINE_USER else None
