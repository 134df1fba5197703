"""Addresses of the API, mounted at ``/api/v1/``."""

from django.urls import path

from analyses import api
from analyses.importing import api as importing
from analyses.lookups import api as lookups
from analyses.trainings import api as trainings

app_name = "api"
urlpatterns = [
    path("analyses/", api.AnalysisList.as_view(), name="analysis-list"),
    path("analyses/import/", importing.AnalysisImport.as_view(), name="analysis-import"),
    path("analyses/<int:pk>/", api.AnalysisDetail.as_view(), name="analysis-detail"),
    path("analyses/<int:pk>/cancel/", api.AnalysisCancel.as_view(), name="analysis-cancel"),
    path("analyses/<int:pk>/adopt/", api.AnalysisAdopt.as_view(), name="analysis-adopt"),
    path("predict/", lookups.Predict.as_view(), name="predict"),
    path("plan/", lookups.Plan.as_view(), name="plan"),
    path("lookups/<int:pk>/", lookups.LookupDetail.as_view(), name="lookup-detail"),
    path("trainings/", trainings.TrainingList.as_view(), name="training-list"),
    path("nodes/", api.NodeList.as_view(), name="node-list"),
    path("models/", api.ModelList.as_view(), name="model-list"),
    path("gpus/", api.GpuList.as_view(), name="gpu-list"),
]
