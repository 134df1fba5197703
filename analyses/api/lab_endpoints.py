"""The lab: its members, its settings, which only admins change, and its savings."""

from __future__ import annotations

from typing import Annotated, Any

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from pydantic import BaseModel, Field
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSetMixin

from analyses.api.schema import described
from analyses.api.serializers import serializer_of
from analyses.api.views import PAGE, ApiView, Pages, body_of, member_of, refusal
from analyses.lab import settings as lab
from analyses.models import LabSettings
from analyses.permissions import may_administer
from analyses.savings.accrual import Amount
from analyses.savings.breakdown import DIMENSIONS, FILTERED_KINDS, Total, Totals, totals_of
from analyses.savings.period import Named
from analyses.savings.selected import selected_by
from analyses.savings.selection import label_of, today_utc, value_of
from engine.core.border import read_body
from engine.core.errors import InvalidInput
from memorymark_site.accounts.roles import Role, stored_role


class MemberSerializer(serializers.ModelSerializer[User]):
    """A lab member."""

    name = serializers.CharField(source="username")
    role = serializers.SerializerMethodField()
    active = serializers.BooleanField(
        source="is_active", help_text="Whether the account and its tokens can sign in."
    )
    last_login = serializers.DateTimeField(
        allow_null=True, help_text="With a browser; tokens do not count."
    )

    class Meta:
        model = User
        fields = ("name", "role", "active", "last_login")
        read_only_fields = fields

    def get_role(self, member: User) -> str:
        """Admin, member or viewer."""
        return stored_role(member).value


class Members(ViewSetMixin, ListModelMixin, ApiView[User]):
    """The accounts of the lab, for admins."""

    serializer_class = MemberSerializer
    pagination_class = Pages
    needs_role = Role.ADMIN

    def get_queryset(self) -> QuerySet[User]:
        return User.objects.select_related("viewer").order_by("username")

    @described(parameters=[*PAGE], responses={200: MemberSerializer(many=True), 403: None})
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List all accounts, including those that can no longer sign in. For admins."""
        return super().list(request, *args, **kwargs)


class LabSerializer(serializers.ModelSerializer[LabSettings]):
    """The defaults of new analyses, and whether members may share."""

    hours_per_run = serializers.FloatField(
        help_text="GPU-hours of one training run at today's batch size, assumed."
    )
    runs_per_year = serializers.FloatField(help_text="Assumed.")
    grid_co2e_grams_per_kwh = serializers.FloatField(
        help_text="Of the electricity of its GPUs, assumed."
    )
    sharing_allowed = serializers.BooleanField(
        help_text="Whether members may share an analysis with people outside the lab."
    )
    changed_by = serializers.CharField(
        source="changed_by.username", default=None, allow_null=True, read_only=True
    )
    changed_at = serializers.DateTimeField(allow_null=True, read_only=True)

    class Meta:
        model = LabSettings
        fields = (*lab.LAB_DEFAULTS, "sharing_allowed", "changed_by", "changed_at")


class LabBody(BaseModel):
    """The settings to change; what is left out stays."""

    hours_per_run: Annotated[
        float | None,
        Field(
            ge=0,
            le=100_000,
            description="GPU-hours of one training run at today's batch size, assumed. Null "
            "restores the engine's default.",
        ),
    ] = None
    runs_per_year: Annotated[
        float | None, Field(ge=0, le=1_000_000, description="Assumed; null as above.")
    ] = None
    grid_co2e_grams_per_kwh: Annotated[
        float | None,
        Field(
            ge=0,
            le=10_000,
            description="Of the electricity of its GPUs, assumed; null as above.",
        ),
    ] = None
    sharing_allowed: Annotated[
        bool,
        Field(description="Whether members may share an analysis with people outside the lab."),
    ] = True


_CHANGED = OpenApiExample("Other hours", {"hours_per_run": 12}, request_only=True)


class Lab(ApiView[LabSettings]):
    """The lab's settings."""

    serializer_class = LabSerializer

    def get(self, _request: Request) -> Response:
        """Read the lab's settings, and who changed them last."""
        return Response(self.get_serializer(lab.lab_settings()).data)

    @described(request=LabBody, examples=[_CHANGED])
    def patch(self, request: Request) -> Response:
        """Change the given settings; null restores the engine's default. For admins."""
        member = admin_of(request, "change the lab's settings")
        try:
            changes = read_body(LabBody, body_of(request)).model_dump(exclude_unset=True)
            stored = {name: getattr(lab.lab_settings(), name) for name in LabBody.model_fields}
            lab.save_settings(member, **stored | changes)
        except InvalidInput as error:
            raise refusal(error) from error
        return self.get(request)


def admin_of(request: Request, what: str) -> User:
    """The member who sends the request; :exc:`PermissionDenied` if that is no admin."""
    member = member_of(request)
    if not may_administer(member):
        raise PermissionDenied(f"Only an admin may {what}.")
    return member


TotalSerializer = serializer_of(Total)

_TEXT = {"type": "string", "pattern": r"^[^\x00]*$"}
"""A database cannot search for a NUL."""


AmountSerializer = serializer_of(Amount)


class SavedSerializer(serializers.Serializer[Any]):
    """Savings in a period, realised and potential."""

    verified = AmountSerializer(help_text="By recorded training runs.")
    self_reported = AmountSerializer(
        help_text="By the assumed runs of adopted workloads without recorded ones."
    )
    realised = AmountSerializer(help_text="Both together.")
    potential = AmountSerializer(help_text="What workloads that are not adopted would have saved.")
    runs = serializers.IntegerField(help_text="The recorded training runs behind it.")


class SavedByDaySerializer(SavedSerializer):
    """Savings from the first day of the period to the end of this one."""

    day = serializers.DateField(help_text="UTC.")


class PeriodSerializer(serializers.Serializer[Any]):
    """The days of a period (UTC), both included."""

    first = serializers.DateField()
    last = serializers.DateField()


class ProjectionSerializer(serializers.Serializer[Any]):
    """Savings projected to the end of the year; none of this is measured."""

    until = serializers.DateField(help_text="The last day of the year.")
    realised = AmountSerializer(help_text="Saved in this year until then.")
    to_come = AmountSerializer(help_text="The part of it that is still to come.")


class SavingsRowSerializer(serializers.Serializer[Any]):
    """The totals of one member, model, GPU, project or month."""

    value = serializers.CharField(help_text="As in the query.")
    label = serializers.CharField(  # type: ignore[assignment]  # a field, not its label
        help_text="As pages show it."
    )
    saved = SavedSerializer(help_text="In the period.")
    realised = TotalSerializer()
    potential = TotalSerializer()
    verified = TotalSerializer(help_text="The part of the realised ones that a run has verified.")


class LabSavingsSerializer(serializers.Serializer[Any]):
    """The totals and their breakdown; the hours, runs and prices in them are assumed."""

    by = serializers.ChoiceField(list(DIMENSIONS))
    period = PeriodSerializer()
    saved = SavedSerializer(help_text="In the period, until today.")
    over_time = SavedByDaySerializer(many=True, help_text="As the page's chart has it.")
    projection = ProjectionSerializer()
    totals = serializer_of(Totals)(help_text="Per year; realised and potential never overlap.")
    count = serializers.IntegerField(help_text="Of the rows, over all pages.")
    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = SavingsRowSerializer(many=True)


class Savings(ApiView[Any]):
    """The lab's savings so far and per year."""

    serializer_class = LabSavingsSerializer

    @described(
        parameters=[
            OpenApiParameter("by", OpenApiTypes.STR, enum=list(DIMENSIONS), default="member"),
            OpenApiParameter(
                "period",
                OpenApiTypes.STR,
                enum=list(Named),
                description="This one, until today; this year by default.",
            ),
            OpenApiParameter("from", OpenApiTypes.DATE, description="Instead of `period`."),
            OpenApiParameter("to", OpenApiTypes.DATE, description="Instead of `period`."),
            OpenApiParameter(
                "kind",
                OpenApiTypes.STR,
                enum=list(FILTERED_KINDS),
                description="`verified` and `self_reported`: workloads of which a part of what "
                "they saved is.",
            ),
            OpenApiParameter(
                "member", _TEXT, description="The name of who adopted it, or else of its owner."
            ),
            OpenApiParameter("model", _TEXT),
            OpenApiParameter(
                "gpu", _TEXT, description="In the catalogue, or `local:NAME` of a node."
            ),
            OpenApiParameter(
                "project", _TEXT, description="Its name; `none` for workloads without one."
            ),
            OpenApiParameter(
                "month",
                {"type": "string", "pattern": r"^[12][0-9]{3}-(0[1-9]|1[0-2])$"},
                description="When it was adopted, or else when it ended, such as 2026-03.",
            ),
            *PAGE,
        ]
    )
    def get(self, request: Request) -> Response:
        """Add up the selected savings, in total and by member, model, GPU, project or month."""
        try:
            selected = selected_by(member_of(request), request.query_params.dict())
        except InvalidInput as error:
            raise refusal(error) from error
        selection, period, ledger = selected.selection, selected.selection.days, selected.ledger()
        rows, pages = selected.rows(), Pages()
        shown = [
            {
                "value": value,
                "label": label_of(selection.by, value),
                "saved": row.saved,
                **vars(row.totals),
            }
            for row in pages.paginate_queryset(rows, request) or []
            for value in [value_of(selection.by, row.key)]
        ]
        body = pages.get_paginated_response(shown).data
        body |= {
            "by": selection.by,
            "period": period,
            "saved": ledger.during(period),
            "over_time": [
                {"day": day, "realised": saved.realised, **vars(saved)}
                for day, saved in ledger.points(period)
            ],
            "projection": ledger.projected(today_utc()),
            "totals": totals_of(rows),
        }
        return Response(self.get_serializer(body).data)
