"""Training jobs that schedulers and experiment trackers report: imported together, and listed."""

from __future__ import annotations

from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSetMixin

from analyses.api.schema import described
from analyses.api.serializers import serializer_of
from analyses.api.views import PAGE, ApiView, Pages, body_of, member_of, refusal
from analyses.models import TrainingJob
from analyses.selectors import training_jobs_visible_to
from analyses.training_jobs.services import Imported, JobsBody, import_jobs
from engine.core.errors import InvalidInput

IMPORT_COST = 10
"""Units of an import, whose jobs are checked and stored together."""


class TrainingJobSerializer(serializers.ModelSerializer[TrainingJob]):
    """A training job as its reporter knows it."""

    owner = serializers.CharField(source="owner.username", default=None, allow_null=True)
    request = serializers.JSONField(
        help_text="Fields of a request for an analysis, as far as the job's config gives them."
    )
    hosts = serializers.ListField(child=serializers.CharField())
    scheduler_job = serializers.IntegerField(
        source="scheduler_job_id",
        allow_null=True,
        help_text="Id of the scheduler's job that this run is part of; its hours count there.",
    )
    from_runs = serializers.ListField(
        child=serializers.CharField(),
        help_text="The fields that it has taken over from runs that are part of it.",
    )

    class Meta:
        model = TrainingJob
        fields = (
            "id", "reporter", "external_id", "owner", "user", "name", "gpu", "device_name", "gpus",
            "started_at", "ended_at", "is_running", "total_bytes", "used_bytes",
            "samples_per_second", "model", "request", "gpu_hours", "slurm_job_id", "hosts",
            "scheduler_job", "from_runs", "imported_at",
        )  # fmt: skip


class TrainingJobs(ViewSetMixin, ListModelMixin, ApiView[TrainingJob]):
    """The training jobs of the lab."""

    queryset = TrainingJob.objects.none()  # for the schema; what is visible depends on the member
    serializer_class = TrainingJobSerializer
    pagination_class = Pages
    costs = MappingProxyType({"create": IMPORT_COST})

    def get_queryset(self) -> QuerySet[TrainingJob]:
        return training_jobs_visible_to(member_of(self.request)).select_related("owner")

    @described(parameters=[*PAGE])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List the lab's training jobs, the last imported first."""
        return super().list(request, *args, **kwargs)

    @described(request=JobsBody, responses={200: serializer_of(Imported)})
    def create(self, request: Request) -> Response:
        """Import training jobs, up to 500 at once.

        A job is stored once, by its ``reporter`` and ``id``: sent again, it is updated.
        Yours become your own; an admin imports everybody's, and each becomes that of the member
        with its user name. A job that is wrong is listed as refused, and the others are stored.
        """
        try:
            found = import_jobs(member_of(request), body_of(request))
        except InvalidInput as error:
            raise refusal(error) from error
        return Response(asdict(found))
