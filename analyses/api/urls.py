"""The addresses of the API, mounted at ``/api/v1/``.

Collections of rows have view sets. Single resources, calculations and catalogues are plain views,
since a router has no routes for them.
"""

from __future__ import annotations

from django.http import HttpResponseBase, HttpResponsePermanentRedirect
from django.urls import Resolver404, path, resolve
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView

from analyses.api import (
    analyses,
    catalogue,
    changes,
    compare,
    inbox,
    lab_endpoints,
    nodes,
    queries,
    schema,
    training_jobs,
    training_runs,
)


class _PermanentRedirect(HttpResponsePermanentRedirect):
    """A redirect that keeps method and body; Django's own would turn a ``POST`` into a ``GET``."""

    status_code = 308


class UnknownAddress(APIView):
    """404; but an address that lacks its last slash, or has one too many, is redirected."""

    schema = None

    def respond(self, request: Request, address: str) -> HttpResponseBase:
        path = request.path
        other = path.removesuffix("/") if path.endswith("/") else f"{path}/"
        if not _is_known(other):
            raise NotFound("Nothing is at this address; /api/docs/ lists those there are.")
        query = request.META.get("QUERY_STRING", "")
        return _PermanentRedirect(f"{other}?{query}" if query else other)

    get = post = put = patch = delete = respond


def _is_known(path: str) -> bool:
    try:
        found = resolve(path)
    except Resolver404:
        return False
    return getattr(found.func, "view_class", None) is not UnknownAddress


router = SimpleRouter(use_regex_path=False)
router.register("analyses", analyses.Analyses, basename="analysis")
router.register("lookups", queries.Queries, basename="lookup")
router.register("members", lab_endpoints.Members, basename="member")
router.register("training-jobs", training_jobs.TrainingJobs, basename="training-job")
router.register("trainings", training_runs.TrainingRuns, basename="training")

app_name = "api"
urlpatterns = [
    *router.urls,
    path("predict/", queries.Predict.as_view(), name="predict"),
    path("plan/", queries.Plan.as_view(), name="plan"),
    path("nodes/", nodes.NodeList.as_view(), name="node-list"),
    path("models/", catalogue.ModelList.as_view(), name="model-list"),
    path("model-types/", catalogue.ModelTypeList.as_view(), name="model-type-list"),
    path("gpus/", catalogue.GpuList.as_view(), name="gpu-list"),
    path("gpus/<str:gpu>/", catalogue.OneGpu.as_view(), name="gpu"),
    path("gpus/<path:gpu>/price/", catalogue.Price.as_view(), name="gpu-price"),
    path("compare/", compare.Compare.as_view(), name="compare"),
    path("savings/changes/", changes.Changes.as_view(), name="changes"),
    path("savings/", lab_endpoints.Savings.as_view(), name="savings"),
    path("inbox/", inbox.Inbox.as_view(), name="inbox"),
    path("inbox/read/", inbox.ReadEntries.as_view(), name="inbox-read"),
    path("lab/", lab_endpoints.Lab.as_view(), name="lab"),
    path("schema/", schema.SchemaFile.as_view(), name="schema"),
    path("<path:address>", UnknownAddress.as_view()),
]
