"""Configs from the Hugging Face hub: ``config.json`` only, never weights, never remote code."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.errors import InvalidInput
from engine.models.building import check_given
from engine.models.config import LARGEST_CONFIG_BYTES, parse_config
from engine.models.hub_switch import SWITCH, asks_hub
from engine.models.kinds import Kind
from engine.workload import Workload

_TIMEOUT_SECONDS = 5.0

Download = Callable[[str], Path]
"""Gives the path of a model's ``config.json`` by its hub id."""


def resolve(workload: Workload, download: Download | None = None) -> Workload:
    """The workload with the config and the sizes of its model settled.

    Args:
        workload: Of a preset or with a config, it is only checked; of a model of the hub, its
            config is fetched.
        download: Fetches a config; asks the hub unless given.

    Raises:
        InvalidInput: If there is no such config to be had, or no model can be trained of it.
    """
    if workload.preset.kind is Kind.UNKNOWN:
        workload = _with_config(workload, download or download_config)
    if workload.config is not None:
        check_given(workload)
    return workload


def download_config(hub_id: str) -> Path:
    """Fetch a model's ``config.json``, or find it in the cache of the Hugging Face libraries.

    ``HF_HUB_OFFLINE`` and ``HF_TOKEN`` hold as they do there.

    Raises:
        InvalidInput: With what to do about it.
    """
    if not asks_hub(os.environ):
        raise _unavailable(
            f"{hub_id} is no preset, and this installation does not ask the hub ({SWITCH}=off); "
            "choose a preset"
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
            f"{hub_id} asks for its licence to be accepted; do that on the hub and set HF_TOKEN"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise _unavailable(
            f"the hub has no public model {hub_id}; check the id, set HF_TOKEN if it is private"
        ) from error
    except errors.EntryNotFoundError as error:
        raise _unavailable(f"{hub_id} has no config.json on the hub; choose another") from error
    except (HTTPError, OSError):
        # Out of reach or switched off; the cache may have it. Asking again through the download
        # would retry for half a minute.
        size = None
    if size is not None and size > LARGEST_CONFIG_BYTES:
        raise _unavailable(f"the config.json of {hub_id} is too large; choose another")
    try:
        path = hf_hub_download(hub_id, "config.json", local_files_only=not reached)
    except (HTTPError, OSError) as error:
        raise _unavailable(
            f"the hub cannot be reached for the config of {hub_id}; try again, choose a preset"
        ) from error
    return Path(path)


def _with_config(workload: Workload, download: Download) -> Workload:
    try:
        path = download(workload.model)
        if path.stat().st_size > LARGEST_CONFIG_BYTES:
            raise _unavailable(f"the config.json of {workload.model} is too large; choose another")
        return replace(workload, config=parse_config(path.read_bytes()))
    except InvalidInput as error:
        if "config" not in error.fields:
            raise
        message = f"the config of {workload.model} cannot be used: {error.fields['config']}"
        raise InvalidInput({"model": message}) from error


def _unavailable(message: str) -> InvalidInput:
    return InvalidInput(
        {"model": f"{message}, or give its config.json (on the command line, --config FILE)"}
    )
