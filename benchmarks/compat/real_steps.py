"""Traces against real steps on the CPU, with the releases of transformers that people have.

``make real-steps`` makes an environment for each release in ``var/compat`` and traces small models
there. The peak of each trace must be equal to the byte to that of real steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from engine.core.errors import EngineError, InvalidInput
from engine.interface.workload import Workload
from engine.models.presets import PRESETS
from engine.tests.small import made_small, small_sizes
from engine.versions import software
from engine.versions.environments import Environment, make, offered

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "var" / "compat"
RELEASES = ("4.44.2", "4.48.3", "4.51.3", "4.53.3", "4.57.6", "5.0.0")
BATCH_SIZE = 3

MISSING, UNABLE = "not in this release", "cannot be trained so"
"""Correct refusals of what a release does not have."""

_TEXT = {"vocab_size": 1000, "max_position_embeddings": 64, "pad_token_id": 0, "eos_token_id": 1}
_ONCE = {  # architectures without a preset, as published measurements have them
    "gpt-neo": {
        "model_type": "gpt_neo", "hidden_size": 64, "num_layers": 2, "num_heads": 4,
        "attention_types": [[["global", "local"], 1]], "window_size": 16, "bos_token_id": 1,
    },
    "opt": {
        "model_type": "opt", "hidden_size": 64, "num_hidden_layers": 2, "ffn_dim": 128,
        "num_attention_heads": 4, "word_embed_proj_dim": 64,
    },
}  # fmt: skip

_WAYS: dict[str, dict[str, Any]] = {
    "checkpointing": {"gradient_checkpointing": True},
    "eager attention": {"attention": "eager"},
    "bf16-mixed": {"precision": "bf16-mixed"},
    "fp16-mixed, checkpointing": {"precision": "fp16-mixed", "gradient_checkpointing": True},
    "bf16-true, SGD": {"precision": "bf16-true", "optimizer": "sgd"},
    "Adafactor, 2 micro-batches": {"optimizer": "adafactor", "gradient_accumulation": 2},
    "LoRA": {"lora_rank": 4},
    "LoRA, checkpointing": {"lora_rank": 4, "gradient_checkpointing": True},
    "classifier": {"task": "sequence-classification"},
}
_TRIED_EVERY_WAY = ("bert", "gpt2", "t5-small", "llama-3.2-1b", "gpt-neo", "vit-b")


def cases() -> Iterator[tuple[str, str, Workload]]:
    """Model, way of training and workload: each architecture once, and some in every way."""
    configs = {
        preset.config()["model_type"]: name
        for name, preset in reversed(PRESETS.items())
        if not preset.package  # which the environments lack
    }
    given = {name: made_small(PRESETS[name].config()) for name in configs.values()}
    given |= {name: _TEXT | config for name, config in _ONCE.items()}
    for name, config in given.items():
        yield name, "AdamW", _workload(name, config)
        if name in _TRIED_EVERY_WAY:
            for way, fields in _WAYS.items():
                try:
                    yield name, way, _workload(name, config, **fields)
                except InvalidInput:  # such as a classifier of text that reads images
                    continue


def _workload(name: str, config: dict[str, Any], **fields: Any) -> Workload:
    small = Workload(f"small-{name}", config=config)
    return Workload(small.model, config=config, **small_sizes(small.preset) | fields)


def difference(workload: Workload) -> int | str:
    """The predicted less the real peak, in bytes, or why there is none."""
    # They load torch, which only the environments need.
    from engine.measurement import cpu
    from engine.measurement.protocol import TrialOrder
    from engine.traces.tracer import trace

    try:
        real = cpu.record(TrialOrder(workload, BATCH_SIZE))
        predicted = trace(workload, BATCH_SIZE, None).peak_by_category()[0]
    except InvalidInput as error:
        return MISSING if "model" in error.fields else UNABLE
    except Exception as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return predicted - sum(real.breakdown.values())


def run_here(names: Iterable[str]) -> None:
    """Try the cases in this Python; writes a JSON line for each."""
    warnings.simplefilter("ignore")
    wanted = set(names)
    for name, way, workload in cases():
        if not wanted or name in wanted:
            line = {"model": name, "way": way, "difference": difference(workload)}
            print(json.dumps(line), flush=True)  # noqa: T201  # a command


def run_in(environment: Environment, names: Iterable[str]) -> Iterator[tuple[str, str, int | str]]:
    """The differences in an environment, as they come."""
    command = [
        os.fspath(environment.python),
        "-m",
        "benchmarks.compat.real_steps",
        "--here",
        *names,
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None  # noqa: S101  # a pipe was asked for
        for text in running.stdout:
            if text.startswith("{"):
                line = json.loads(text)
                yield line["model"], line["way"], line["difference"]
    if running.returncode:
        raise EngineError(f"{environment.name}: the cases ended with status {running.returncode}")


def main() -> int:
    """Print a row for each release and case; the status says whether all are equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="models to try; default all")
    parser.add_argument("--software", action="append", help="versions to try; default: all known")
    parser.add_argument("--here", action="store_true", help="only with the packages of this Python")
    options = parser.parse_args()
    if options.here:
        run_here(options.models)
        return 0
    wanted = [software.parse(text) for text in options.software or []]
    wanted = wanted or [{"transformers": release} for release in RELEASES]
    environments = [_environment(versions) for versions in wanted]
    if not options.software:
        environments.append(Environment("pinned", Path(sys.executable), software.installed()))
    unequal = 0
    for environment in environments:
        print(software.format_versions(environment.versions))  # noqa: T201  # a command
        for name, way, found in run_in(environment, options.models):
            is_wrong = found not in (0, MISSING, UNABLE)
            unequal += is_wrong
            shown = f"{found:+,} B" if isinstance(found, int) and found else found or "equal"
            mark = "!" if is_wrong else " "
            print(f"{mark} {name:<14} {way:<28} {shown}", flush=True)  # noqa: T201  # a command
    print(f"{unequal} of the traces differ from the real steps.")  # noqa: T201  # a command
    return 1 if unequal else 0


def _environment(versions: dict[str, str]) -> Environment:
    """The environment with these versions, made unless it was before."""
    name = software.as_text(versions)
    known = {environment.name: environment for environment in offered(FOLDER)}
    if name not in known:
        print(f"Making {FOLDER / name} ...", flush=True)  # noqa: T201  # a command
        return make(FOLDER, versions)
    return known[name]


if __name__ == "__main__":
    sys.exit(main())
