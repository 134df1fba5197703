"""The lab: its members, its settings and what its GPUs cost. Admins change them."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiExample
from rest_framework import serializers
from rest_framework.exceptions import NotFound, PermissionDenied, ValidationError
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.status import HTTP_204_NO_CONTENT

from analyses.api.asking import fields_of, member_of, refusal
from analyses.api.paging import PAGE, Pages
from analyses.api.schema import described
from analyses.api.views import ApiView
from analyses.lab import selectors, services
from analyses.models import LabSettings
from analyses.permissions import may_administer
from engine.errors import InvalidInput
from engine.gpus import GPUS
from engine.parsing import unknown_fields
from memorymark_site.accounts.roles import Role, stored_role


class MemberSerializer(serializers.ModelSerializer[User]):
    """A member of the lab."""

    name = serializers.CharField(source="username")
    role = serializers.SerializerMethodField()
    active = serializers.BooleanField(
        source="is_active", help_text="Whether the account can sign in; its tokens too."
    )
    last_login = serializers.DateTimeField(
        allow_null=True, help_text="With the browser; tokens do not count."
    )

    class Meta:
        model = User
        fields = ("name", "role", "active", "last_login")
        read_only_fields = fields

    def get_role(self, member: User) -> str:
        """Admin, member or viewer."""
        return stored_role(member).value


class MemberList(ListModelMixin, ApiView[User]):
    """The members of the lab, for admins."""

    serializer_class = MemberSerializer
    pagination_class = Pages
    needs_role = Role.ADMIN

    def get_queryset(self) -> QuerySet[User]:
        """Every account, A to Z."""
        return User.objects.select_related("viewer").order_by("username")

    @described(parameters=[*PAGE], responses={200: MemberSerializer(many=True), 403: None})
    def get(self, request: Request) -> Response:
        """List the accounts, those that cannot sign in any more too. For admins."""
        return self.list(request)


class LabSerializer(serializers.ModelSerializer[LabSettings]):
    """What holds until an analysis says otherwise."""

    hours_per_run = serializers.FloatField(
        min_value=0,
        max_value=100_000,
        allow_null=True,
        help_text="GPU-hours of one training run at today's batch size, assumed. Null goes back to "
        "the engine's own.",
    )
    runs_per_year = serializers.FloatField(
        min_value=0, max_value=1_000_000, allow_null=True, help_text="Assumed; null as above."
    )
    sharing_allowed = serializers.BooleanField(
        help_text="Whether members may show an analysis to people outside the lab."
    )
    changed_by = serializers.CharField(
        source="changed_by.username", default=None, allow_null=True, read_only=True
    )
    changed_at = serializers.DateTimeField(allow_null=True, read_only=True)

    class Meta:
        model = LabSettings
        fields = ("hours_per_run", "runs_per_year", "sharing_allowed", "changed_by", "changed_at")


_CHANGED = OpenApiExample("Other hours", {"hours_per_run": 12}, request_only=True)


class Lab(ApiView[LabSettings]):
    """The lab's settings."""

    serializer_class = LabSerializer

    def get(self, _request: Request) -> Response:
        """Read what holds now, and who has changed it last."""
        return Response(self.get_serializer(selectors.lab_settings()).data)

    @described(request=LabSerializer(partial=True), examples=[_CHANGED])
    def patch(self, request: Request) -> Response:
        """Set what is given; null goes back to the engine's own number. For admins."""
        member = _check_admin(request, "change what holds for the whole lab")
        given = fields_of(request)
        _check(given, _SETTINGS)
        stored = selectors.lab_settings()
        try:
            services.save_settings(
                member, **{name: given.get(name, getattr(stored, name)) for name in _SETTINGS}
            )
        except InvalidInput as error:
            raise refusal(error) from error
        return self.get(request)


class PriceSerializer(serializers.Serializer[Any]):
    """What a GPU costs: assumed, by the lab or by the catalogue."""

    gpu = serializers.CharField(read_only=True)
    price_per_hour_usd = serializers.FloatField(
        source="usd",
        allow_null=True,
        help_text="Of one GPU; null where nobody knows one.",
    )
    catalogue_price_per_hour_usd = serializers.FloatField(
        source="catalogue_usd", allow_null=True, read_only=True
    )
    origin = serializers.ChoiceField(
        ["lab", "catalogue", ""], read_only=True, help_text="Whose price it is."
    )
    set_by = serializers.CharField(
        source="change.set_by.username", default=None, allow_null=True, read_only=True
    )
    set_at = serializers.DateTimeField(
        source="change.set_at", default=None, allow_null=True, read_only=True
    )


class NewPriceSerializer(serializers.Serializer[Any]):
    """What a GPU is to cost."""

    price_per_hour_usd = serializers.FloatField(min_value=0, max_value=10_000)


_PRICED = OpenApiExample("What we pay", {"price_per_hour_usd": 0.8}, request_only=True)


class Price(ApiView[Any]):
    """What one kind of GPU costs the lab."""

    serializer_class = PriceSerializer

    def get(self, _request: Request, gpu: str) -> Response:
        """Read the price that holds, and the catalogue's."""
        return self._answer(gpu)

    @described(request=NewPriceSerializer, examples=[_PRICED])
    def put(self, request: Request, gpu: str) -> Response:
        """Set the lab's own price. For admins."""
        member = _check_admin(request, "set prices")
        _check_known(gpu)
        given = fields_of(request)
        _check(given, {_PRICE: _NUMBER})
        if given.get(_PRICE) is None:
            raise ValidationError({_PRICE: ["give it; DELETE goes back to the catalogue's"]})
        try:
            services.set_price(member, gpu, given[_PRICE])
        except InvalidInput as error:
            raise refusal(error) from error
        return self._answer(gpu)

    @described(responses={204: None})
    def delete(self, request: Request, gpu: str) -> Response:
        """Go back to the catalogue's price. For admins."""
        member = _check_admin(request, "set prices")
        _check_known(gpu)
        services.set_price(member, gpu, None)
        return Response(status=HTTP_204_NO_CONTENT)

    def _answer(self, gpu: str) -> Response:
        _check_known(gpu)
        return Response(self.get_serializer(selectors.price_of(gpu)).data)


_NUMBER: tuple[type, ...] = (int, float, types.NoneType)
_SETTINGS: Mapping[str, tuple[type, ...]] = {
    "hours_per_run": _NUMBER,
    "runs_per_year": _NUMBER,
    "sharing_allowed": (bool,),
}
_PRICE = "price_per_hour_usd"


def _check_admin(request: Request, what: str) -> User:
    member = member_of(request)
    if not may_administer(member):
        raise PermissionDenied(f"Only an admin may {what}.")
    return member


def _check_known(gpu: str) -> None:
    if gpu not in GPUS and gpu not in selectors.kinds_outside_the_catalogue():
        raise NotFound("There is no such GPU; /api/v1/gpus/ and /api/v1/nodes/ name them.")


def _check(given: Mapping[str, Any], known: Mapping[str, tuple[type, ...]]) -> None:
    """Refuse unknown names, and what is not even of the kind; how large it may be is judged later.

    Raises:
        ValidationError: With a message for each wrong field.
    """
    wrong = {name: [message] for name, message in unknown_fields(given, known).items()}
    for name, value in given.items():
        if name in known and type(value) not in known[name]:
            wrong[name] = ["give true or false" if bool in known[name] else "give a number"]
    if wrong:
        raise ValidationError(wrong)
