"""The result of a machine's self-check, and what it says in a sentence.

:mod:`engine.selfcheck` measures it. It is plain data, which loads no torch: a site stores it with
its node. :mod:`engine.gpus.known` puts its values in place of the catalogue's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from ..core.border import read_json
from ..core.numbers import ms
from ..core.sizes import gib
from ..versions import software
from . import catalogue_name
from .driver import LocalGpu, local_gpu

SECONDS = 90.0
"""A self-check takes no longer."""

MEMORY = ("peak_allocated_bytes", "peak_reserved_bytes", "device_used_bytes", "live_bytes")
STEP = "step_seconds"
_MIB = 2**20


@dataclass(frozen=True)
class Identity:
    """Identity of the machine of a self-check, which is repeated where one of these changes.

    Attributes:
        gpu, gpu_uuid, driver: As the driver reports them; empty without a GPU.
        torch, transformers: Versions; empty where not installed.
    """

    gpu: str
    gpu_uuid: str
    driver: str
    torch: str
    transformers: str

    @classmethod
    def of(cls, gpu: LocalGpu | None, versions: Mapping[str, str]) -> Identity:
        return cls(
            gpu=gpu.name if gpu else "",
            gpu_uuid=gpu.uuid if gpu else "",
            driver=gpu.driver if gpu else "",
            torch=versions.get("torch", ""),
            transformers=versions.get("transformers", ""),
        )

    @classmethod
    def here(cls) -> Identity:
        """Identity of this process; the driver is queried, and torch is not loaded."""
        return cls.of(local_gpu(), software.installed())


class FirstUse(StrEnum):
    """Kinds of work that take memory the first time, in the order in which they are done."""

    CONTEXT = "CUDA context, one tensor"
    PRODUCT = "cuBLAS, fp32 product"
    BACKWARD = "cuBLAS, its backward in autograd's thread"
    LINEAR = "cuBLASLt, linear layer with a bias"
    HALF = "cuBLAS, bf16 product and backward"
    CONVOLUTION = "cuDNN, fp32 convolution and backward"
    ATTENTION = "attention in bf16 and backward"


_OF_CUBLAS = (FirstUse.PRODUCT, FirstUse.BACKWARD, FirstUse.LINEAR, FirstUse.HALF)
_OF_CUDNN = (FirstUse.CONVOLUTION, FirstUse.ATTENTION)


@dataclass(frozen=True)
class FixedCost:
    """The counters after one kind of work was done for the first time in a process.

    Attributes:
        after: The work, for people to read.
        device_used_bytes: All memory in use on the device.
        reserved_bytes: Bytes held by the caching allocator.
        allocated_bytes: Bytes still allocated once every tensor is freed: workspaces.
        peak_allocated_bytes: Most bytes allocated during the work, including its tensors.
        tensor_bytes: Bytes of the tensors that the work returned.
    """

    after: str
    device_used_bytes: int
    reserved_bytes: int
    allocated_bytes: int
    peak_allocated_bytes: int
    tensor_bytes: int

    @property
    def outside_bytes(self) -> int:
        """Used beside the caching allocator: the context, kernels and libraries."""
        return self.device_used_bytes - self.reserved_bytes


@dataclass(frozen=True)
class Device:
    """The device that was checked.

    Attributes:
        kind: ``cuda``, ``mps`` or ``cpu``.
        name: The driver's name for it.
        total_bytes: Its memory as CUDA reports it; on the CPU, the machine's.
        compute_capability: On CUDA, such as 9.0; else zero.
        cuda: The version of CUDA that torch was built with; empty for a CPU build.
    """

    kind: str
    name: str
    total_bytes: int
    compute_capability: float
    cuda: str


@dataclass(frozen=True)
class Rates:
    """Rates that the device sustains in large operations.

    Attributes:
        bytes_per_second: Bytes read and written while a large tensor is copied.
        flops_per_second: Rate of large matrix products, by number format.
    """

    bytes_per_second: float
    flops_per_second: dict[str, float]


@dataclass(frozen=True)
class Comparison:
    """One number of a small workload, measured beside its prediction.

    Attributes:
        workload: Its name, for people to read.
        fields: Fields of :class:`~engine.interface.workload.Workload` that are not at their
        defaults.
        batch_size: Samples per step.
        counted: One of :data:`MEMORY`, in bytes, or :data:`STEP`.
    """

    workload: str
    fields: dict[str, object]
    batch_size: int
    counted: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1: negative if the prediction was too low."""
        return self.predicted / self.measured - 1

    @property
    def label(self) -> str:
        """Name of what is counted, for people to read."""
        return self.counted.removesuffix("_bytes").removesuffix("_seconds").replace("_", " ")

    @property
    def measured_in_unit(self) -> str:
        return self._in_unit(self.measured)

    @property
    def predicted_in_unit(self) -> str:
        return self._in_unit(self.predicted)

    @property
    def error_in_percent(self) -> str:
        return f"{100 * self.error:+.2f}%".replace("-", "\N{MINUS SIGN}")

    def _in_unit(self, number: float) -> str:
        if self.counted in MEMORY:
            return gib(number, 3)
        return ms(number)


@dataclass(frozen=True)
class Problem:
    """Something that does not run on this machine, or could not be measured.

    Attributes:
        what: The subject of a sentence about it.
        reason: The reason in one line.
        advice: Advice on what to do.
    """

    what: str
    reason: str
    advice: str


@dataclass(frozen=True)
class SelfCheck:
    """Everything that one self-check found.

    Attributes:
        when: ISO 8601, in UTC.
        identity: The machine and software that it holds for.
        seconds: Its duration.
        device: ``None`` if it did not answer.
        fixed_costs: In the order of the work; empty without a CUDA GPU.
        launch_seconds: Time that the host takes to launch one tiny operation.
        step_launch_seconds: The same on average over a small model's training step, with autograd
            and the optimizer. Only on a GPU, which then waits for its host.
        rates: ``None`` without a CUDA GPU.
        comparisons: Comparisons of all small workloads that ran and could be predicted.
        problems: Empty where everything runs.
        step_predictor: Predictor of the step times, as
            :func:`~engine.prediction.timing.speed_model.step_predictor` names it.
    """

    when: str
    identity: Identity
    seconds: float
    device: Device | None = None
    fixed_costs: tuple[FixedCost, ...] = ()
    launch_seconds: float | None = None
    step_launch_seconds: float | None = None
    rates: Rates | None = None
    comparisons: tuple[Comparison, ...] = ()
    problems: tuple[Problem, ...] = ()
    step_predictor: str = ""

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    @property
    def on_gpu(self) -> bool:
        return self.device is not None and self.device.kind == "cuda"

    @property
    def gpu_name(self) -> str:
        """The catalogue's name of the GPU; empty where it has none."""
        if self.device is None or not self.on_gpu:
            return ""
        return catalogue_name(self.device.name, self.device.total_bytes) or ""

    @property
    def context_bytes(self) -> int | None:
        """Size of the CUDA context and cuBLAS: the most before cuDNN; ``None`` if not measured."""
        return max((one.outside_bytes for one in self._costs(_OF_CUBLAS)), default=None)

    @property
    def cudnn_bytes(self) -> int | None:
        """Size of cuDNN with its kernels, on top; ``None`` if not measured."""
        context = self.context_bytes
        most = max((one.outside_bytes for one in self._costs(_OF_CUDNN)), default=None)
        return None if context is None or most is None else max(most - context, 0)

    @property
    def cublas_workspace_bytes(self) -> int | None:
        """Workspace of the thread that multiplies first; ``None`` if not measured.

        The other work of :attr:`fixed_costs` before it keeps nothing allocated.
        """
        products = self._costs(_OF_CUBLAS)
        return products[0].allocated_bytes if products else None

    def _costs(self, of_work: Sequence[str]) -> list[FixedCost]:
        return [one for one in self.fixed_costs if one.after in of_work]

    @property
    def memory_error(self) -> float | None:
        """The largest error of predicted memory, without sign; ``None`` if none was compared."""
        return worst(one for one in self.comparisons if one.counted in MEMORY)

    @property
    def time_error(self) -> float | None:
        """The same of step times."""
        return worst(one for one in self.comparisons if one.counted == STEP)

    @property
    def sentence(self) -> str:
        """Accuracy of predictions here, in one sentence."""
        found = [
            f"{what} within {_percent(error)}"
            for what, error in (("memory", self.memory_error), ("time", self.time_error))
            if error is not None
        ]
        if not found:
            return "No prediction could be compared with a measurement on this node."
        where = "" if self.on_gpu else " (on its CPU, since it has no CUDA GPU)"
        return f"Predictions on this node: {', '.join(found)}{where}."


def measured_rows(check: SelfCheck) -> list[tuple[str, str]]:
    """Measurements of the machine, each with its unit; what was not measured is left out."""
    rows: list[tuple[str, str]] = []
    for name, size in (
        ("CUDA context and cuBLAS", check.context_bytes),
        ("cuDNN, beside it", check.cudnn_bytes),
        ("cuBLAS workspace of a thread", check.cublas_workspace_bytes),
    ):
        if size is not None:
            rows.append((name, f"{size / _MIB:,.1f} MiB"))
    for name, seconds in (
        ("Launch of one tiny operation", check.launch_seconds),
        ("Launch of an operation of a training step", check.step_launch_seconds),
    ):
        if seconds is not None:
            rows.append((name, f"{1e6 * seconds:,.1f} µs"))
    if check.rates is not None:
        rows.append(("Memory bandwidth", f"{check.rates.bytes_per_second / 1e9:,.0f} GB/s"))
        for name, flops in check.rates.flops_per_second.items():
            rows.append((f"Matrix products in {name}", f"{flops / 1e12:,.1f} TFLOP/s"))
    return rows


def worst(comparisons: Iterable[Comparison]) -> float | None:
    """The largest error, without sign; ``None`` without any."""
    return max((abs(one.error) for one in comparisons), default=None)


def _percent(error: float) -> str:
    """Rounded up, since it is a bound; to a tenth below one percent."""
    tenths = -int(-1000 * round(error, 9) // 1)
    if tenths >= 10:
        return f"{-(-tenths // 10)}%"
    return f"{tenths / 10:.1f}%" if tenths else "0%"


def read_self_check(given: object) -> SelfCheck:
    """The inverse of :meth:`SelfCheck.to_dict`, from a JSON value or its text.

    Raises:
        InvalidInput: If another version of MemoryMark wrote it.
    """
    return read_json(SelfCheck, given)
