"""The transformers model that a workload trains, with random weights."""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from transformers import (
    AutoModel,
    AutoModelForAudioClassification,
    AutoModelForCausalLM,
    AutoModelForCTC,
    AutoModelForDepthEstimation,
    AutoModelForImageClassification,
    AutoModelForMaskedImageModeling,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForObjectDetection,
    AutoModelForQuestionAnswering,
    AutoModelForSemanticSegmentation,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoModelForUniversalSegmentation,
    AutoModelForVideoClassification,
    PretrainedConfig,
)

from ..core.choices import Attention, CrossEntropy, Method, Precision
from ..core.errors import EngineError, InvalidInput, in_one_line
from ..core.parsing import shown
from ..core.sizes import gib
from ..interface.workload import Workload
from ..models.architectures import KNOWN
from ..models.model import Model, missing_modules
from ..models.published import published_format_caveats
from ..models.tasks import Task
from ..tracing.flex_attention import COMPUTED
from .flex_attention import NAME as FLEX
from .flex_attention import check_release
from .own_code import unread_caveats, why_another_model
from .transformers_versions import (
    TRIED_WITH,
    VERSION,
    AutoModelForImageTextToText,
    AutoModelForPrediction,
    AutoModelForSpeech,
    building_on_any_device,
    from_config,
    new_config,
    text_part,
)

TASKS: dict[Task, Any] = {
    Task.SEQUENCE_CLASSIFICATION: AutoModelForSequenceClassification,
    Task.TOKEN_CLASSIFICATION: AutoModelForTokenClassification,
    Task.MASKED_LANGUAGE_MODELLING: AutoModelForMaskedLM,
    Task.CAUSAL_LANGUAGE_MODELLING: AutoModelForCausalLM,
    Task.QUESTION_ANSWERING: AutoModelForQuestionAnswering,
    Task.MULTIPLE_CHOICE: AutoModelForMultipleChoice,
    Task.PERMUTED_LANGUAGE_MODELLING: AutoModelForCausalLM,
    Task.SEQUENCE_TO_SEQUENCE: AutoModelForSeq2SeqLM,
    Task.SENTENCE_EMBEDDING: AutoModel,
    Task.REWARD_MODELLING: AutoModelForSequenceClassification,
    Task.IMAGE_CLASSIFICATION: AutoModelForImageClassification,
    Task.MASKED_IMAGE_MODELLING: AutoModelForMaskedImageModeling,
    Task.SEMANTIC_SEGMENTATION: AutoModelForSemanticSegmentation,
    Task.UNIVERSAL_SEGMENTATION: AutoModelForUniversalSegmentation,
    Task.OBJECT_DETECTION: AutoModelForObjectDetection,
    Task.DEPTH_ESTIMATION: AutoModelForDepthEstimation,
    Task.VIDEO_CLASSIFICATION: AutoModelForVideoClassification,
    Task.CONTRASTIVE: AutoModel,
    Task.IMAGE_TEXT_TO_TEXT: AutoModelForImageTextToText,
    Task.SPEECH_RECOGNITION: AutoModelForSpeech,
    Task.CTC: AutoModelForCTC,
    Task.AUDIO_CLASSIFICATION: AutoModelForAudioClassification,
    Task.TIME_SERIES_PREDICTION: AutoModelForPrediction,
}

_TRAINER_LEAVES_CACHE = VERSION < (5, 0)

_FRAMES = ("num_frames", "frames_per_clip")
_NEED_PADDING = (Task.SEQUENCE_CLASSIFICATION, Task.REWARD_MODELLING)
# A classifying decoder reads its last token that is not padding; the target of an encoder and
# decoder is shifted right and begins with padding.

_LETTERS = 32
"""The vocabulary of Wav2Vec2 for English, where a config leaves it to the fine-tuning."""

MAX_PARAMETER_COUNT = 5 * 10**12
"""Three times the largest published models: DeepSeek V4 Pro has 1.6 trillion parameters."""


_ATTENTION = {Attention.EAGER: "eager", Attention.FLEX: FLEX}
"""Names in transformers of the implementations that it does not choose by itself."""


def new_model(workload: Workload) -> torch.nn.Module:
    """The workload's model on the current device, its parameters in the workload's format.

    Raises:
        EngineError: If it comes from a package that is not installed.
        InvalidInput: If it has no such attention.
    """
    _require(workload.preset)
    if workload.task is Task.TEXT_TO_IMAGE:
        from .diffusion import new_text_to_image  # loads diffusers, which takes seconds

        with building_on_any_device():
            return new_text_to_image(workload)
    given = workload.preset.config()
    config = model_config(workload)
    dtype = torch.bfloat16 if workload.precision is Precision.BF16_TRUE else torch.float32
    attention = _ATTENTION.get(workload.attention)
    if workload.attention is Attention.FLEX:
        check_release()
    with building_on_any_device():
        try:
            model = from_config(TASKS[_task(workload)], config, dtype, attention)
        except ValueError as error:
            if workload.attention is not Attention.FLEX or FLEX not in str(error):
                raise
            name = workload.preset.display_name
            message = f"transformers has no FlexAttention for {name}; choose sdpa"
            raise InvalidInput({"attention": message}) from error
    if given.get("tie_word_embeddings") is False:
        _untie_head(model)
    return model


def _require(model: Model) -> None:
    packages = model.optional_packages
    if missing := missing_modules(*packages):
        raise EngineError(
            f"{model.display_name} needs {' and '.join(missing)}, not installed here: pip install "
            f"'memorymark[{','.join(packages)}]'"
        )


def model_config(workload: Workload) -> Any:
    """The transformers config of the workload's model, as the workload trains it."""
    fields = _config_fields(workload)
    config = new_config(fields.pop("model_type"), **fields)
    _drop_no_layers(config)
    if _task(workload) in _NEED_PADDING or config.is_encoder_decoder:
        for part in (config, text_part(config)):
            if getattr(part, "pad_token_id", None) is None:
                part.pad_token_id = 0
    for name in _FRAMES:
        if workload.frame_count is not None and hasattr(config, name):
            setattr(config, name, workload.frame_count)
    if _task(workload) is Task.CTC and getattr(config, "vocab_size", 0) is None:
        config.vocab_size = _LETTERS
    if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = getattr(config, "pad_token_id", None)
    if hasattr(config, "default_language") and config.default_language is None:
        config.default_language = config.languages[0]  # of several that a batch may be in
    return config


def forward_arguments(workload: Workload) -> Set[str]:
    """The names of what the model's forward pass takes."""
    model_class = TASKS[_task(workload)]._model_mapping[type(model_config(workload))]
    if isinstance(model_class, tuple):  # of several, the plain one
        model_class = model_class[0]
    return signature(model_class.forward).parameters.keys()


def _untie_head(model: Any) -> None:
    """Give a model the head of its own that its config says its published weights have.

    FLAN-T5, T5 1.1, mT5 and UMT5 come with weights for their heads. Since release 5, transformers
    ties the head to the embeddings whatever the config says, and loading such weights unties it.
    """
    head = model.get_output_embeddings()
    if head is not None and head.weight is model.get_input_embeddings().weight:
        head.weight = torch.nn.Parameter(head.weight.detach().clone())


def caches_keys_and_values(workload: Workload) -> bool:
    """Whether a decoder's config asks for a cache, which gradient checkpointing switches off.

    By default as in Hugging Face's Trainer: it sets ``use_cache`` from its own arguments, where it
    is off, since release 5; before, it left configs alone, and theirs is on.
    """
    if workload.use_cache is None:
        return _TRAINER_LEAVES_CACHE and workload.preset.caches(workload.task)
    return workload.use_cache


def cache_caveats(workload: Workload) -> list[str]:
    """Caveats about caching keys and values, such as where a workload leaves it open."""
    if workload.use_cache and workload.gradient_checkpointing:
        return ["Gradient checkpointing switches the key-value cache off."]
    learns_from_answers = workload.method is not Method.SFT
    if learns_from_answers or workload.use_cache is not None:
        return []
    if not workload.preset.caches(workload.task):
        return []
    if caches_keys_and_values(workload):
        return [
            "Keys and values are cached (use_cache), as in Hugging Face's Trainer before "
            "transformers 5."
        ]
    return [
        "Keys and values are not cached (use_cache), as in Hugging Face's Trainer since "
        "transformers 5. Your own loop caches them unless config.use_cache is false, and then "
        "needs more memory."
    ]


def code_caveats(workload: Workload) -> list[str]:
    """Caveats about code: others than what was traced may run, or other releases of it."""
    found = [COMPUTED] if workload.attention is Attention.FLEX else []
    found += [*unread_caveats(workload), *published_format_caveats(workload.preset.config())]
    if packages := KNOWN[workload.preset.config()["model_type"]].kernels:
        found.append(
            f"Predicted as without {' and '.join(packages)}, whose kernels transformers runs where "
            "they are installed. With them a step is much faster and usually needs less memory."
        )
    if more := _more_in_earlier_releases(workload):
        found.append(
            "The loss is that of Liger-Kernel 0.8.3 and later. Releases from 0.6.2 on need up to "
            f"{gib(more)} more, for copies of the gradient of the head."
        )
    return found


def _more_in_earlier_releases(workload: Workload) -> int:
    """Bytes that Liger-Kernel's loss took for a trained head in 16 bits before release 0.8.3.

    Source: ``grad_weight += torch.mm(…).float()`` in ``fused_linear_cross_entropy_forward`` of the
    releases 0.6.2 to 0.8.2: a product in 16 bits, and the same in fp32.
    """
    trains_head = workload.lora_rank is None or "lm_head" in (workload.modules_to_save or "")
    in_16_bits = workload.precision in (Precision.BF16_MIXED, Precision.BF16_TRUE)
    if workload.cross_entropy is not CrossEntropy.LIGER or not (trains_head and in_16_bits):
        return 0
    config = text_part(model_config(workload))
    return int((2 + 4) * config.vocab_size * config.hidden_size)


def _config_fields(workload: Workload) -> dict[str, Any]:
    """The config's fields as the workload trains it: its head, its image size."""
    # Of several classes for a task, take the plain one, not that of the published weights.
    fields = workload.preset.config() | {"architectures": []}
    if workload.label_count is not None:
        fields = {name: fields[name] for name in fields.keys() - {"id2label", "label2id"}}
        one = workload.label_count == 1
        fields |= {
            "num_labels": workload.label_count,
            "problem_type": "regression" if one else "single_label_classification",
        }
    if workload.image_size is not None and workload.task is not Task.IMAGE_TEXT_TO_TEXT:
        if "vision_config" in fields:
            fields["vision_config"] = _with_image_size(fields["vision_config"], workload.image_size)
        else:
            fields = _with_image_size(fields, workload.image_size)
    if workload.task is Task.CAUSAL_LANGUAGE_MODELLING:
        fields["is_decoder"] = True  # for models that are encoders unless told so
    return fields | {"use_cache": caches_keys_and_values(workload)}


def _with_image_size(fields: dict[str, Any], side: int) -> dict[str, Any]:
    """The fields for square images, which some configs write as height and width."""
    in_two = isinstance(fields.get("image_size"), list)
    return fields | {"image_size": [side, side] if in_two else side}


def check_given(workload: Workload) -> None:
    """Build the model of a given config on the meta device, to see whether there is one.

    Raises:
        InvalidInput: If transformers refuses the config, or would make another model of it, or the
            model is too large.
    """
    with blaming_the_config(workload), torch.device("meta"):
        if why := why_another_model(workload):
            raise _wrong_config(workload, why)
        model = new_model(workload)
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > MAX_PARAMETER_COUNT:
        message = f"a model of {count:,} parameters (maximum {MAX_PARAMETER_COUNT:,})"
        raise _wrong_config(workload, message)


@contextmanager
def blaming_the_config(workload: Workload) -> Iterator[None]:
    """Report errors of transformers or PyTorch as errors of a given config, or of an old release.

    They fail in many ways, from a missing activation function to mismatched shapes, and only the
    config is new to them. With a preset and a release that all presets are tried with, an error
    stays what it is: our mistake.
    """
    try:
        yield
    except (EngineError, MemoryError):
        raise
    except Exception as error:
        reason = in_one_line(_in_the_first_place(error), shown)
        if workload.config is None:
            if VERSION >= TRIED_WITH:
                raise
            release, name = ".".join(map(str, VERSION)), workload.preset.display_name
            raise EngineError(
                f"{name} cannot be traced with transformers {release} ({reason}); use a newer "
                "release"
            ) from error
        raise _wrong_config(workload, f"transformers cannot train it: {reason}") from error


def _wrong_config(workload: Workload, message: str) -> InvalidInput:
    """The error, at the field that the config came from."""
    if hub_id := workload.preset.hub_id:
        return InvalidInput({"model": f"the config of {hub_id} cannot be used: {message}"})
    return InvalidInput({"config": message})


def _in_the_first_place(error: Exception) -> BaseException:
    """The error behind those of huggingface_hub, which only say that a check of theirs failed."""
    wraps = type(error).__name__.startswith("StrictDataclass")  # not in all releases
    return error.__cause__ or error if wraps else error


def _task(workload: Workload) -> Task:
    if workload.task is None:
        raise EngineError(f"the config of {workload.model} was not fetched")
    return workload.task


def _drop_no_layers(config: Any) -> None:
    """Run every layer in every step: memory is decided by the steps that drop none."""
    for name, value in list(vars(config).items()):
        if name.endswith("layerdrop"):
            setattr(config, name, 0.0)
        elif isinstance(value, PretrainedConfig):
            _drop_no_layers(value)
