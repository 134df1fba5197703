"""Configs from the Hugging Face Hub: ``config.json`` only, never weights, never remote code."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from .core.errors import InvalidInput
from .interface.workload import Workload
from .models.config import parse_config
from .models.config_text import MAX_CONFIG_BYTES
from .models.tasks import Kind

SWITCH = "MEMORYMARK_HUB"
"""Environment variable; ``off`` keeps the engine from connecting to the hub."""

_TIMEOUT_SECONDS = 5.0

Download = Callable[[str], Path]
"""Returns the path of a model's ``config.json``, given its hub id."""


def asks_hub(environment: Mapping[str, str]) -> bool:
    return environment.get(SWITCH, "").strip().lower() not in ("off", "0", "false", "no")


def resolve(workload: Workload, download: Download | None = None) -> Workload:
    """The workload with its model's config, fetched from the hub if need be, and its sizes.

    Args:
        workload: A workload of a preset, of a given config, or of a hub model.
        download: Fetches a config; by default from the hub.

    Raises:
        InvalidInput: If the config is not available, or does not give a model.
    """
    if workload.preset.kind is Kind.UNKNOWN:
        workload = _with_config(workload, download or download_config)
    if workload.config is not None:
        from .step.building import check_given  # loads torch

        check_given(workload)
    return workload


def download_config(hub_id: str) -> Path:
    """Fetch a model's ``config.json``, or find it in the Hugging Face cache.

    ``HF_HUB_OFFLINE`` and ``HF_TOKEN`` work as usual.

    Raises:
        InvalidInput: With what to do about it.
    """
    if not asks_hub(os.environ):
        raise _unavailable(
            f"{hub_id} is not a preset, and the Hub is switched off here ({SWITCH}=off); choose a "
            "preset"
        )
    # Seconds to load, and rarely wanted.
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # its client's own

    reached = False
    try:
        url = hf_hub_url(hub_id, "config.json")
        size = get_hf_file_metadata(url, timeout=_TIMEOUT_SECONDS).size
        reached = True
    except errors.GatedRepoError as error:
        raise _unavailable(
            f"{hub_id} requires accepting its licence; do that on the Hub and set HF_TOKEN"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise _unavailable(
            f"the Hub has no public model {hub_id}; check the ID, set HF_TOKEN if it is private"
        ) from error
    except errors.EntryNotFoundError as error:
        raise _unavailable(
            f"{hub_id} has no config.json on the Hub; choose another model"
        ) from error
    except (HTTPError, OSError):
        # Unreachable or offline; the cache may have it. The download itself would retry for half
        # a minute.
        size = None
    if size is not None and size > MAX_CONFIG_BYTES:
        raise _unavailable(f"the config.json of {hub_id} is too large; choose another")
    try:
        path = hf_hub_download(hub_id, "config.json", local_files_only=not reached)  # nosec  # JSON, checked
    except (HTTPError, OSError) as error:
        raise _unavailable(
            f"the Hub cannot be reached for the config of {hub_id}; try again, choose a preset"
        ) from error
    return Path(path)


def _with_config(workload: Workload, download: Download) -> Workload:
    try:
        path = download(workload.model)
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise _unavailable(
                f"the config.json of {workload.model} is too large; choose another model"
            )
        return replace(workload, config=parse_config(path.read_bytes()))
    except InvalidInput as error:
        if "config" not in error.fields:
            raise
        message = f"the config of {workload.model} cannot be used: {error.fields['config']}"
        raise InvalidInput({"model": message}) from error


def _unavailable(message: str) -> InvalidInput:
    return InvalidInput(
        {"model": f"{message}, or enter its config.json (on the command line, --config FILE)"}
    )
