"""Variables of accelerate's launcher, by its config file."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.errors import InvalidInput
from engine.recipes.launch import LAUNCH, described_launch, launch_environment


def config(folder: Path, *lines: str) -> Path:
    path = folder / "accelerate.yaml"
    path.write_text("\n".join(lines))
    return path


def test_processes_and_precision_are_those_of_the_config(tmp_path: Path) -> None:
    several = config(
        tmp_path,
        "distributed_type: MULTI_GPU",
        "mixed_precision: bf16",
        "num_machines: 2",
        "num_processes: 16",
        "main_process_port: 29501",
    )
    found = launch_environment(several)
    assert found == {
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_DYNAMO_BACKEND": "NO",
        "WORLD_SIZE": "16",
        "LOCAL_WORLD_SIZE": "8",
    }
    assert described_launch(found, "a.yaml") == (
        "Launched as a.yaml says: 16 processes, mixed precision bf16."
    )


def test_one_process_is_no_group(tmp_path: Path) -> None:
    alone = config(tmp_path, "distributed_type: NO", "mixed_precision: no", "num_processes: 1")
    found = launch_environment(alone)
    assert "WORLD_SIZE" not in found
    assert found["ACCELERATE_MIXED_PRECISION"] == "no"
    assert "1 process, mixed precision no" in described_launch(found, "a.yaml")


def test_fsdp_has_the_launchers_defaults(tmp_path: Path) -> None:
    sharded = config(
        tmp_path,
        "distributed_type: FSDP",
        "num_processes: 4",
        "fsdp_config:",
        "  fsdp_version: 2",
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
        "  fsdp_activation_checkpointing: true",
    )
    found = launch_environment(sharded)
    assert found["ACCELERATE_USE_FSDP"] == "true"
    assert found["FSDP_VERSION"] == "2"
    assert found["FSDP_AUTO_WRAP_POLICY"] == "TRANSFORMER_BASED_WRAP"
    assert found["FSDP_ACTIVATION_CHECKPOINTING"] == "true"
    assert found["FSDP_RESHARD_AFTER_FORWARD"] == "true"
    assert "FSDP_STATE_DICT_TYPE" not in found
    assert "4 processes with FSDP" in described_launch(found, "a.yaml")


def test_zero_is_told_by_accelerates_keys_or_its_own_config(tmp_path: Path) -> None:
    zero = ("distributed_type: DEEPSPEED", "num_processes: 8", "deepspeed_config:")
    found = launch_environment(
        config(tmp_path, *zero, "  zero_stage: 3", "  zero3_init_flag: true")
    )
    assert found["ACCELERATE_USE_DEEPSPEED"] == "true"
    assert found["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == "3"
    assert found["ACCELERATE_DEEPSPEED_ZERO3_INIT"] == "true"
    found = launch_environment(config(tmp_path, *zero, "  deepspeed_config_file: Zero.json"))
    assert found["ACCELERATE_DEEPSPEED_CONFIG_FILE"] == "Zero.json"


def test_compilation_is_told_in_either_layout(tmp_path: Path) -> None:
    part = config(
        tmp_path, "dynamo_config:", "  dynamo_backend: inductor", "  dynamo_mode: default"
    )
    found = launch_environment(part)
    assert found["ACCELERATE_DYNAMO_BACKEND"] == "INDUCTOR"
    assert found["ACCELERATE_DYNAMO_MODE"] == "default"
    found = launch_environment(config(tmp_path, "dynamo_backend: INDUCTOR"))
    assert found["ACCELERATE_DYNAMO_BACKEND"] == "INDUCTOR"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("distributed_type: MEGATRON_LM", "distributed_type 'MEGATRON_LM' is not predicted"),
        ("mixed_precision: fp8", "mixed_precision 'fp8' is not predicted"),
        ("use_cpu: true", "use_cpu: it trains on the CPU"),
        ("num_processes: -1", "num_processes is '-1'"),
        ("num_processes: four", "num_processes is 'four'"),
        ("num_machines: 0", "num_machines is '0'"),
        ("parallelism_config: {tp_size: 4}", "parallelism_config is not predicted"),
        ("fsdp_config: {fsdp_new: true}", "fsdp_config.new is not predicted"),
        ("deepspeed_config: {new: 1}", "deepspeed_config.new is not predicted"),
        ("dynamo_config: {dynamo_new: 1}", "dynamo_config.new is not predicted"),
        ("fsdp_config: full", "fsdp_config is not a mapping"),
        ("'unclosed", "this is not YAML"),
    ],
)
def test_what_is_not_followed_is_refused_by_its_key(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        launch_environment(config(tmp_path, line))
    assert said in refused.value.fields[LAUNCH]
