"""Addresses of the API, mounted at ``/api/v1/``."""

from django.urls import path

from analyses.api import (
    analyses,
    catalogue,
    compare,
    docs,
    importing,
    lab,
    lookups,
    progress,
    savings,
    trainings,
)
from analyses.api.elsewhere import ANYTHING, Elsewhere

app_name = "api"
urlpatterns = [
    path("analyses/", analyses.AnalysisList.as_view(), name="analysis-list"),
    path("analyses/import/", importing.AnalysisImport.as_view(), name="analysis-import"),
    path("analyses/<int:pk>/", analyses.AnalysisDetail.as_view(), name="analysis-detail"),
    path("analyses/<int:pk>/cancel/", analyses.AnalysisCancel.as_view(), name="analysis-cancel"),
    path("analyses/<int:pk>/adopt/", analyses.AnalysisAdopt.as_view(), name="analysis-adopt"),
    path("analyses/<int:pk>/events/", progress.AnalysisEvents.as_view(), name="analysis-events"),
    path("analyses/<int:pk>/trials/", progress.AnalysisTrials.as_view(), name="analysis-trials"),
    path("predict/", lookups.Predict.as_view(), name="predict"),
    path("plan/", lookups.Plan.as_view(), name="plan"),
    path("lookups/<int:pk>/", lookups.LookupDetail.as_view(), name="lookup-detail"),
    path("trainings/", trainings.TrainingList.as_view(), name="training-list"),
    path("nodes/", catalogue.NodeList.as_view(), name="node-list"),
    path("models/", catalogue.ModelList.as_view(), name="model-list"),
    path("gpus/", catalogue.GpuList.as_view(), name="gpu-list"),
    path("gpus/<path:gpu>/price/", lab.Price.as_view(), name="gpu-price"),
    path("compare/", compare.Compare.as_view(), name="compare"),
    path("savings/", savings.Savings.as_view(), name="savings"),
    path("members/", lab.MemberList.as_view(), name="member-list"),
    path("lab/", lab.Lab.as_view(), name="lab"),
    path("schema/", docs.SchemaFile.as_view(), name="schema"),
    path(ANYTHING, Elsewhere.as_view()),
]
