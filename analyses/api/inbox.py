"""The inbox of the member who asks, for scripts: its entries, and marking them as read."""

from __future__ import annotations

from typing import Annotated, Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter
from pydantic import BaseModel, Field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from analyses.api.schema import described
from analyses.api.views import PAGE, ApiView, Pages, body_of, member_of, refusal
from analyses.bodies import MAX_NUMBER
from analyses.models import Concern, InboxEntry
from analyses.notifications import inbox
from engine.core.border import read_body
from engine.core.errors import InvalidInput
from memorymark_site.accounts.roles import Role

UNREAD, ALL = "unread", "all"

MAX_ENTRIES = 500
"""Entries in one request."""

_SHOW = OpenApiParameter(
    "show",
    OpenApiTypes.STR,
    enum=[UNREAD, ALL],
    description="`unread`, the default, or `all`.",
)


class InboxEntrySerializer(serializers.ModelSerializer[InboxEntry]):
    """Something that concerns a member, about one analysis."""

    kind = serializers.ChoiceField(Concern.choices)
    analysis = serializers.IntegerField(source="analysis_id", help_text="Its id.")
    text = serializers.SerializerMethodField(help_text="As the inbox shows it.")
    by = serializers.CharField(
        source="mention.by.username",
        default=None,
        allow_null=True,
        help_text="Who mentions you; null otherwise.",
    )
    read_at = serializers.DateTimeField(allow_null=True, help_text="Null while it is unread.")

    class Meta:
        model = InboxEntry
        fields = ("id", "kind", "analysis", "text", "by", "at", "read_at")

    def get_text(self, entry: InboxEntry) -> str:
        """The content in a sentence."""
        return inbox.sentence(entry)


class Inbox(ApiView[InboxEntry], ListAPIView[InboxEntry]):
    """The entries that concern the member, newest first."""

    queryset = InboxEntry.objects.none()  # for the schema; the entries depend on the member
    serializer_class = InboxEntrySerializer
    pagination_class = Pages

    def get_queryset(self) -> QuerySet[InboxEntry]:
        shown = self.request.query_params.get("show", UNREAD)
        if shown not in (UNREAD, ALL):
            raise ValidationError({"show": [f"choose {UNREAD} or {ALL}"]})
        entries = inbox.entries_of(member_of(self.request))
        return entries if shown == ALL else entries.filter(read_at=None)

    @described(parameters=[*PAGE, _SHOW], responses={200: InboxEntrySerializer(many=True)})
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List your inbox, the newest first: mentions, decisions that wait, checked predictions.

        `count` is the number of those listed.
        """
        return super().get(request, *args, **kwargs)


class ReadBody(BaseModel):
    """The entries that have been read."""

    entries: Annotated[
        list[Annotated[int, Field(ge=1, le=MAX_NUMBER)]],
        Field(max_length=MAX_ENTRIES, description="Ids."),
    ] = []
    all: Annotated[bool, Field(description="Whether it is all that are unread.")] = False


class UnreadSerializer(serializers.Serializer[Any]):
    """Number of entries left to read."""

    unread = serializers.IntegerField(help_text=f"Counted up to {inbox.MAX_COUNTED + 1}.")


class ReadEntries(ApiView[InboxEntry]):
    """The entries that the member has read."""

    needs_role = Role.VIEWER  # a former member can still clear the inbox
    serializer_class = UnreadSerializer

    @described(
        request=ReadBody,
        responses={200: UnreadSerializer},
        examples=[OpenApiExample("Two of them", {"entries": [41, 42]}, request_only=True)],
    )
    def post(self, request: Request) -> Response:
        """Mark entries of your inbox as read; others are left alone."""
        member = member_of(request)
        try:
            body = read_body(ReadBody, body_of(request))
            if not (body.entries or body.all):
                raise InvalidInput({"entries": "name one, or send all"})
        except InvalidInput as error:
            raise refusal(error) from error
        inbox.mark_read(member, None if body.all else body.entries)
        return Response({"unread": inbox.count_unread(member)})
