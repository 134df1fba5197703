"""The catalogue: models by name, GPUs, and what a GPU costs the lab."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from drf_spectacular.utils import OpenApiExample
from pydantic import BaseModel, Field
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.status import HTTP_201_CREATED, HTTP_204_NO_CONTENT

from analyses.api.lab_endpoints import admin_of
from analyses.api.schema import described, results_of
from analyses.api.serializers import serializer_of
from analyses.api.views import ApiView, body_of, refusal
from analyses.gpus import added_gpus
from analyses.lab import settings as lab
from analyses.models import AddedGpu
from engine.core.border import read_body
from engine.core.errors import InvalidInput
from engine.gpus import BUILT_IN, GPUS, Gpu
from engine.gpus.data_sheet import DataSheet
from engine.models.coverage import ModelType, checked_with, model_types
from engine.models.presets import PRESETS, Preset
from engine.models.tasks import Kind


class ModelSerializer(serializer_of(Preset, name="Model")):  # type: ignore[misc]  # made from a data class
    """A model with its config, as ``presets.toml`` lists it."""

    kind = serializers.ChoiceField(
        [(kind.value, kind.name) for kind in Kind], help_text="What it reads, for its default task."
    )


class ModelList(ApiView[Any]):
    """The models that can be analyzed by name."""

    serializer_class = ModelSerializer

    @described(responses=results_of(ModelSerializer, "Models"))
    def get(self, _request: Request) -> Response:
        """List the models that have a name here. Any other is given by its hub ID or its config."""
        return Response({"results": self.get_serializer(list(PRESETS.values()), many=True).data})


ModelTypeSerializer = serializer_of(ModelType)


class ModelTypesSerializer(serializers.Serializer[Any]):
    """The whole list, and what it was checked with."""

    transformers = serializers.CharField(
        help_text="The version whose model types these are, and with which they were checked."
    )
    results = ModelTypeSerializer(many=True)


class ModelTypeList(ApiView[Any]):
    """The model types that transformers has."""

    serializer_class = ModelTypeSerializer

    @described(responses=ModelTypesSerializer)
    def get(self, _request: Request) -> Response:
        """List the model types that can be trained, with the tasks that are predicted or refused.

        A small model of each predicted type and task takes the same memory in its trace as in real
        steps on a CPU, to the byte.
        """
        listed = self.get_serializer(model_types(), many=True).data
        return Response({"transformers": checked_with(), "results": listed})


class GpuSerializer(serializer_of(Gpu)):  # type: ignore[misc]  # made from a data class
    """A kind of GPU with its price; each number has a source."""

    catalogue_price_per_hour_usd = serializers.FloatField(
        allow_null=True,
        help_text="The catalogue's own price, where an admin has set another; null if unknown.",
    )
    added = serializers.BooleanField(
        help_text="Whether an admin has added it by its data sheet; only such a one can be changed."
    )


DataSheetSerializer = serializer_of(DataSheet)

_ADDED = OpenApiExample(
    "An NVIDIA L20",
    {
        "name": "NVIDIA L20", "memory_gb": 48, "bandwidth_gb_per_second": 864, "fp32_tflops": 59.8,
        "fp16_tflops": 119.5, "bf16_tflops": 119.5, "tf32_tflops": 59.8, "power_watts": 275,
        "compute_capability": 8.9, "multiprocessors": 92, "price_per_hour_usd": 0.5,
    },
    request_only=True,
)  # fmt: skip


class GpuList(ApiView[Any]):
    """The GPUs that can be predicted for."""

    serializer_class = GpuSerializer

    @described(responses=results_of(GpuSerializer, "Gpus"))
    def get(self, _request: Request) -> Response:
        """List the catalogue GPUs, each number with its source, and the current price."""
        prices = lab.prices(GPUS)
        facts = [_gpu_facts(gpu, prices[gpu.name]) for gpu in GPUS.values()]
        return Response({"results": self.get_serializer(facts, many=True).data})

    @described(request=DataSheetSerializer, responses={201: GpuSerializer}, examples=[_ADDED])
    def post(self, request: Request) -> Response:
        """Add a GPU by its data sheet. For admins.

        Only ``name`` to ``power_watts`` are needed. Rates are dense, without sparsity. It can be
        predicted for and compared at once.
        """
        member = admin_of(request, "add GPUs")
        try:
            row = added_gpus.add(member, body_of(request))
        except InvalidInput as error:
            raise refusal(error) from error
        return Response(self.get_serializer(_facts_of(row.name)).data, status=HTTP_201_CREATED)


class OneGpu(ApiView[Any]):
    """One GPU, and its data sheet if an admin has added it."""

    serializer_class = GpuSerializer

    @described(operation_id="gpus_one_retrieve")
    def get(self, _request: Request, gpu: str) -> Response:
        """Read a GPU, each number with its source, and its current price."""
        if gpu not in GPUS:
            raise NotFound(_UNKNOWN)
        return Response(self.get_serializer(_facts_of(gpu)).data)

    @described(request=DataSheetSerializer, examples=[_ADDED])
    def put(self, request: Request, gpu: str) -> Response:
        """Change the data sheet of a GPU that was added. For admins.

        Analyses that have run keep their results.
        """
        member, row = admin_of(request, "change GPUs"), _added(gpu)
        try:
            added_gpus.change(member, row, body_of(request))
        except InvalidInput as error:
            raise refusal(error) from error
        return Response(self.get_serializer(_facts_of(gpu)).data)

    @described(responses={204: None})
    def delete(self, request: Request, gpu: str) -> Response:
        """Remove a GPU that was added. Analyses of it stay as they are. For admins."""
        member = admin_of(request, "remove GPUs")
        added_gpus.remove(member, _added(gpu))
        return Response(status=HTTP_204_NO_CONTENT)


def _added(gpu: str) -> AddedGpu:
    row = added_gpus.rows().get(gpu)
    if row is None:
        raise NotFound("No admin has added such a GPU; those built in cannot be changed.")
    return row


def _facts_of(gpu: str) -> dict[str, Any]:
    return _gpu_facts(GPUS[gpu], lab.price_of(gpu))


def _gpu_facts(gpu: Gpu, price: lab.HeldPrice) -> dict[str, Any]:
    facts = asdict(gpu)
    if price.is_the_labs:
        facts["sources"]["price_per_hour_usd"] = "assumed: set by a lab admin"
    return facts | {
        "price_per_hour_usd": price.usd,
        "catalogue_price_per_hour_usd": price.catalogue_usd,
        "added": gpu.name not in BUILT_IN,
    }


class PriceSerializer(serializers.Serializer[Any]):
    """The price of a GPU, assumed by the lab or by the catalogue."""

    gpu = serializers.CharField(read_only=True)
    price_per_hour_usd = serializers.FloatField(
        source="usd", allow_null=True, help_text="Per GPU; null if unknown."
    )
    catalogue_price_per_hour_usd = serializers.FloatField(
        source="catalogue_usd", allow_null=True, read_only=True
    )
    origin = serializers.ChoiceField(
        ["lab", "catalogue", ""], read_only=True, help_text="Where the price comes from."
    )
    set_by = serializers.CharField(
        source="change.set_by.username", default=None, allow_null=True, read_only=True
    )
    set_at = serializers.DateTimeField(
        source="change.set_at", default=None, allow_null=True, read_only=True
    )


class NewPriceBody(BaseModel):
    """The lab's own price of a GPU."""

    price_per_hour_usd: Annotated[float, Field(ge=0, le=10_000)]


_PRICED = OpenApiExample("What we pay", {"price_per_hour_usd": 0.8}, request_only=True)


class Price(ApiView[Any]):
    """The price of one kind of GPU for the lab."""

    serializer_class = PriceSerializer

    def get(self, _request: Request, gpu: str) -> Response:
        """Read the current price of a GPU, and the catalogue's."""
        return self._now(gpu)

    @described(request=NewPriceBody, examples=[_PRICED])
    def put(self, request: Request, gpu: str) -> Response:
        """Set the lab's own price. For admins."""
        member = admin_of(request, "set prices")
        _check_known(gpu)
        try:
            price = read_body(NewPriceBody, body_of(request)).price_per_hour_usd
            lab.set_price(member, gpu, price)
        except InvalidInput as error:
            raise refusal(error) from error
        return self._now(gpu)

    @described(responses={204: None})
    def delete(self, request: Request, gpu: str) -> Response:
        """Restore the catalogue's price. For admins."""
        member = admin_of(request, "set prices")
        _check_known(gpu)
        lab.set_price(member, gpu, None)
        return Response(status=HTTP_204_NO_CONTENT)

    def _now(self, gpu: str) -> Response:
        _check_known(gpu)
        return Response(self.get_serializer(lab.price_of(gpu)).data)


def _check_known(gpu: str) -> None:
    if gpu not in GPUS and gpu not in lab.kinds_outside_the_catalogue():
        raise NotFound(_UNKNOWN)


_UNKNOWN = "There is no such GPU; /api/v1/gpus/ and /api/v1/nodes/ list them."
