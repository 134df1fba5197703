"""The private names of torch, transformers and other packages that the engine touches.

They come, move and go from one release to the next. Each has one line here, with the releases that
have it where some have not, and what takes its place there. ``python -m
engine.versions.private_names`` looks all of them up in the packages that are installed, and exits
with status 1 if one is not where this list has it; it needs neither pytest nor Django. A test fails
when the engine touches a private name that is not here.

A path is a module and the attributes that lead on from it. What objects get only when they are made
is written after a colon; it is looked for in what their class mentions.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import software
from .software import minor

_PYTORCH = """
torch._C._ExcludeDispatchKeyGuard
torch._C._autograd._get_sequence_nr
torch._C._current_autograd_node
torch._C._current_graph_task_id
torch._C._dispatch_get_registrations_for_dispatch_key
torch._C._dispatch_has_kernel_for_dispatch_key
torch._C._distributed_c10d.FileStore
torch._C._distributed_c10d._DEFAULT_FIRST_BUCKET_BYTES
torch._C._distributed_c10d._compute_bucket_assignment_by_size
torch._C._distributed_c10d._resolve_process_group
torch._C._functorch.get_unwrapped
torch._C._functorch.is_functorch_wrapped_tensor
torch._C._get_accelerator
torch._C._get_sdp_priority_order
torch._C._group_tensors_by_device_and_dtype
torch._C._nn._parse_to
torch._C._set_only_lift_cpu_tensors
torch._C._set_sdp_priority_order
torch._C._storage_Use_Count
torch._C.TensorBase._use_count
torch._dynamo.eval_frame._callback_from_stance
torch._foreach_add_
torch._foreach_addcmul_
torch._foreach_div
torch._foreach_div_
torch._foreach_lerp_
torch._foreach_mul_
torch._foreach_sqrt_
torch._foreach_sub_
torch._inductor
torch._library.triton.is_wrap_triton_enabled
torch._nested_tensor_from_mask_left_aligned
torch._ops.OpOverload:_overloadpacket
torch._ops.OpOverload:_schema
torch._ops.OpOverloadPacket
torch._subclasses.fake_tensor.DataDependentOutputException
torch._subclasses.fake_tensor.DynamicOutputShapeException
torch._subclasses.fake_tensor.FakeTensor
torch._subclasses.fake_tensor.FakeTensorMode
torch._subclasses.fake_tensor.FakeTensorMode._prep_args_for_hash
torch._subclasses.fake_tensor.init_gpu_context
torch._subclasses.fake_tensor.unset_fake_temporarily
torch.amp.GradScaler._maybe_opt_step
torch.autograd.Variable._execution_engine
torch.autograd.grad_mode._unsafe_preserve_version_counter
torch._C._FunctionBase._sequence_nr
torch.cpu._current_stream
torch.cuda._initialized
torch.cuda._is_in_bad_fork
torch.cuda._lazy_call
torch.cuda._lazy_init
torch.cuda.memory._record_memory_history
torch.cuda.memory._snapshot
torch._C._distributed_c10d.ProcessGroup._allgather_base
torch._C._distributed_c10d.ProcessGroup._reduce_scatter_base
torch.distributed.distributed_c10d._get_default_group
torch.distributed.fsdp._fully_shard._fsdp_collectives.foreach_reduce
torch.distributed.fsdp._fully_shard._fsdp_param
torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam
torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam:_sharded_param_data
torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam:_unsharded_param
torch.distributed.fsdp._fully_shard._fsdp_param._chunk_with_empty
torch.distributed.fsdp._fully_shard._fsdp_param_group
torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup
torch.distributed.tensor.DTensor._op_dispatcher
torch.distributed.tensor.DTensor:_local_tensor
torch.distributed.tensor._dispatch
torch.distributed.tensor._dtensor_spec.DTensorSpec
torch.distributed.tensor._op_schema
torch.distributed.tensor._op_schema._rebuild_tensor_from_dtensor_meta
torch.distributed.tensor._random
torch.distributed.tensor._random._rng_tracker
torch.distributed.tensor._redistribute._gen_transform_infos
torch.distributed.tensor._sharding_prop.LocalLRUCache
torch.distributed.tensor._sharding_prop.ShardingPropagator
torch.distributed.tensor._sharding_prop.ShardingPropagator._propagate_tensor_meta_non_cached
torch.distributed.tensor.experimental._attention
torch.distributed.tensor.experimental._attention._RotateMethod
torch.distributed.tensor.experimental._attention._cp_options
torch.library.Library._destroy
torch.nn.Module:_buffers
torch.nn.Module:_modules
torch.nn.Module:_parameters
torch.nn.modules.module._IncompatibleKeys
torch.ops._c10d_functional
torch.ops.aten._amp_foreach_non_finite_check_and_unscale_
torch.ops.aten._ctc_loss
torch.ops.aten._ctc_loss_backward
torch.ops.aten._cudnn_rnn
torch.ops.aten._cudnn_rnn_backward
torch.ops.aten._foreach_copy_
torch.ops.aten._index_put_impl_
torch.ops.aten._is_all_true
torch.ops.aten._linalg_eigh
torch.ops.aten._linalg_svd
torch.ops.aten._local_scalar_dense
torch.ops.aten._log_softmax
torch.ops.aten._pack_padded_sequence
torch.ops.aten._pad_packed_sequence
torch.ops.aten._pin_memory
torch.ops.aten._scaled_dot_product_attention_math
torch.ops.aten._scaled_dot_product_cudnn_attention
torch.ops.aten._scaled_dot_product_cudnn_attention_backward
torch.ops.aten._scaled_dot_product_efficient_attention
torch.ops.aten._scaled_dot_product_efficient_attention_backward
torch.ops.aten._scaled_dot_product_flash_attention
torch.ops.aten._scaled_dot_product_flash_attention_backward
torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
torch.ops.aten._softmax
torch.ops.aten._thnn_fused_gru_cell
torch.ops.aten._thnn_fused_gru_cell_backward
torch.ops.aten._thnn_fused_lstm_cell
torch.ops.aten._to_copy
torch.ops.aten._unique2
torch.ops.aten._unsafe_index
torch.ops.aten._unsafe_index_put
torch.ops.aten._unsafe_view
torch.ops.aten._upsample_bicubic2d_aa
torch.ops.aten._upsample_bilinear2d_aa
torch.ops.aten._upsample_nearest_exact1d
torch.ops.aten._upsample_nearest_exact2d
torch.ops.aten._upsample_nearest_exact3d
torch.ops.c10d._allgather_base_
torch.ops.c10d._reduce_scatter_base_
torch.optim.adagrad._get_value
torch.optim.adam._get_value
torch.Tensor._make_wrapper_subclass
torch.serialization._get_restore_location
torch.serialization._load
torch.serialization._serialization_tls
torch.storage._new_dtypes
torch.testing._internal.distributed.fake_pg.FakeStore
torch.UntypedStorage._cdata
torch.utils._device._device_constructors
torch.utils._device.DeviceContext
torch.overrides._get_current_function_mode_stack
torch.utils._foreach_utils._foreach_supported_types
torch.optim.optimizer._get_foreach_kernels_supported_devices
torch.utils._python_dispatch.TorchDispatchMode
torch.utils._python_dispatch._disable_current_modes
torch.utils._python_dispatch.is_traceable_wrapper_subclass
torch.utils._python_dispatch._get_current_dispatch_mode_stack
torch.utils._python_dispatch._push_mode
torch.utils._pytree.tree_iter
torch.utils._pytree.tree_leaves
torch.utils._pytree.tree_map
torch.utils._pytree.tree_map_only
torch.utils.data.DataLoader._get_iterator
torch.utils.data._utils.fetch._MapDatasetFetcher
torch.utils.data.dataloader._BaseDataLoaderIter
torch.utils.data.dataloader._BaseDataLoaderIter:_dataset
torch.utils.data.dataloader._BaseDataLoaderIter:_index_sampler
torch.utils.data.dataloader._BaseDataLoaderIter._next_index
torch.utils.data.dataloader._SingleProcessDataLoaderIter
"""

_OTHERS = """
accelerate.state.AcceleratorState._shared_state
accelerate.state.GradientState._shared_state
accelerate.state.PartialState._shared_state
peft.LoraConfig._register_custom_module
transformers.AutoModel._model_mapping
transformers.PretrainedConfig._attn_implementation
transformers.PreTrainedModel._from_config
transformers.Trainer._save_checkpoint
transformers.Trainer:_train_batch_size
transformers.generation.GenerationMixin._expand_inputs_for_generation
transformers.models.auto.auto_factory._BaseAutoModelClass
transformers.models.auto.auto_factory._LazyAutoMapping
transformers.models.led.modeling_led._prepare_4d_attention_mask_inverted
"""


@dataclass(frozen=True)
class Release:
    """Range of the releases that have a name, where not all tested ones do.

    Attributes:
        since: The first release with it; empty if the oldest tested one has it.
        until: The first one without it again; empty if the newest tested one has it.
        instead: Fallback of the engine where it is missing.
    """

    since: str = ""
    until: str = ""
    instead: str = ""


IN_SOME: Mapping[str, Release] = {
    "torch.storage._StorageBase:_checkpoint_offset": Release(
        "2.7", instead="scripts that load files onto the GPU are refused"
    ),
    "torch._utils._restore_device_fake_mode": Release(
        "2.7", instead="scripts that load files onto the GPU are refused"
    ),
    "torch._C._clear_DTensor_sharding_propagator_cache": Release(
        "2.10", instead="nothing, as that cache is not there"
    ),
    "torch.distributed._tools.fake_collectives": Release(
        "2.7", instead="parallel/collectives.py fills in what it registers"
    ),
    "torch.distributed.device_mesh.DeviceMesh._concatenate": Release(
        "2.10", instead="nothing, as nothing calls it"
    ),
    "torch.ops.aten._grouped_mm": Release("2.8", instead="mixtures of experts run otherwise"),
    "transformers.AttentionInterface._global_mapping": Release(
        "4.51", instead="FlexAttention is refused"
    ),
    "transformers.PreTrainedModel._tp_plan": Release(
        "4.49", instead="tensor parallelism is refused"
    ),
    "transformers.PreTrainedModel:_require_grads_hooks": Release(
        "5.0", instead="nothing, as the one hook goes with the model"
    ),
    "transformers.generation.GenerationMixin._get_running_beams_for_next_iteration": Release(
        "4.50", instead="generation with beams is refused"
    ),
    "transformers.generation.GenerationMixin._get_top_k_continuations": Release(
        "4.50", instead="generation with beams is refused"
    ),
    "transformers.generation.GenerationMixin._update_finished_beams": Release(
        "4.50", instead="generation with beams is refused"
    ),
    "transformers.generation.GenerationMixin._maybe_prepare_encoder_kwargs_for_generation": Release(
        "5.18", instead="generation from images is refused"
    ),
    "transformers.generation.GenerationMixin._prepare_position_ids_for_generation": Release(
        "5.1", instead="generation from images is refused"
    ),
    "transformers.distributed.mixin.DistributedMixin._expand_parallel_plan": Release(
        "5.18", instead="parallel experts are refused"
    ),
    "transformers.distributed.expert_parallel.AllToAllEP._dispatch_tokens": Release(
        "5.18", instead="parallel experts are refused"
    ),
    "transformers.models.gemma4.modeling_gemma4.Gemma4VisionPooler._avg_pool_by_positions": Release(
        "5.5", instead="nothing, as there are no such models"
    ),
}
"""Names that come or go within the tested range."""

NAMES: Mapping[str, Release] = {
    **dict.fromkeys((_PYTORCH + _OTHERS).split(), Release()),
    **IN_SOME,
}
"""All of them, by path."""


def misplaced(installed: Mapping[str, str] | None = None) -> Iterator[str]:
    """Sentences about names that are not where this list has them; missing packages are left out.

    Args:
        installed: Versions by package; by default those of this environment.
    """
    here = software.installed() if installed is None else installed
    for path, release in NAMES.items():
        package = path.partition(".")[0]
        if package not in here:
            continue
        is_expected = _is_expected(minor(here[package]), release)
        if _is_there(path) is not is_expected:
            state = "is missing from" if is_expected else "is not expected, and yet there, in"
            yield f"{path} {state} {package} {here[package]}"


def _is_expected(version: tuple[int, int], release: Release) -> bool:
    begun = not release.since or version >= minor(release.since)
    return begun and (not release.until or version < minor(release.until))


def _is_there(path: str) -> bool:
    place, _, made = path.partition(":")
    try:
        found = _found(place)
    except (ImportError, AttributeError):
        return False
    return not made or made in _written_in(found)


def _written_in(kind: type) -> set[str]:
    """The names that a class declares, or that its methods mention."""
    found = {*getattr(kind, "__annotations__", ()), *vars(kind)}
    for value in vars(kind).values():
        code = getattr(inspect.unwrap(getattr(value, "__func__", value)), "__code__", None)
        if code is not None:
            found |= {*code.co_names, *(one for one in code.co_consts if isinstance(one, str))}
    return found


def _found(place: str) -> Any:
    """The object that a path leads to.

    Raises:
        ImportError, AttributeError: If it leads nowhere.
    """
    package, *names = place.split(".")
    found: Any = importlib.import_module(package)
    path = package
    for name in names:
        path = f"{path}.{name}"
        # Some packages hide modules behind another object of their name.
        found = getattr(found, name) if hasattr(found, name) else importlib.import_module(path)
    return found


def main() -> int:
    """Print what is not where this list has it; status 1 if anything is."""
    found = list(misplaced())
    said = "\n".join(found) or f"all {len(NAMES)} private names are where they are expected"
    sys.stdout.write(f"{said}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
