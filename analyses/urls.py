"""URLs of the pages, mounted at the site's root."""

from django.urls import path

from analyses.pages import (
    added_gpus,
    advice,
    analysis,
    gpus,
    lab,
    leaving,
    models,
    notifications,
    overview,
    savings,
    sharing,
    training_runs,
)
from analyses.pages.compare import views as compare
from analyses.pages.history import labels, selection
from analyses.pages.history import views as history
from analyses.pages.new import views as new

app_name = "analyses"

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("overview/<str:chart>.csv", overview.as_csv, name="overview-csv"),
    path("history/", history.history, name="list"),
    path("history/export.csv", history.export_csv, name="export-csv"),
    path("history/export.json", history.export_json, name="export-json"),
    path("compare/", compare.compare, name="compare"),
    path("compare/bars.svg", compare.bars, name="compare-bars"),
    path("compare/table.md", compare.table_as_markdown, name="compare-markdown"),
    path("compare/table.csv", compare.table_as_csv, name="compare-csv"),
    path("gpus/", gpus.gpus, name="gpus"),
    path("gpus/price/", lab.price, name="gpu-price"),
    path("gpus/add/", added_gpus.add, name="gpu-add"),
    path("gpus/<slug:gpu>/edit/", added_gpus.edit, name="gpu-edit"),
    path("gpus/<slug:gpu>/remove/", added_gpus.remove, name="gpu-remove"),
    path("gpus/<int:pk>/check/", gpus.check_again, name="check-node"),
    path("lab/", lab.edit_settings, name="lab"),
    path("members/<int:pk>/deactivate/", leaving.deactivate, name="deactivate"),
    path("models/", models.models, name="models"),
    path("new/", new.new, name="new"),
    path("new/preview/", new.preview, name="preview"),
    path("new/preview/<int:pk>/", new.preview_state, name="preview-state"),
    path("notifications/", notifications.choose, name="notifications"),
    path("notifications/secret/", notifications.renew_secret, name="notifications-secret"),
    path("notifications/test/", notifications.send_test, name="notifications-test"),
    path("savings/", savings.savings, name="savings"),
    path("savings/report/", savings.report, name="savings-report"),
    path("savings/totals.csv", savings.totals_as_csv, name="savings-totals-csv"),
    path("savings/over-time.csv", savings.over_time_as_csv, name="savings-over-time-csv"),
    path("savings/analyses.csv", savings.analyses_as_csv, name="savings-analyses-csv"),
    path("<int:pk>/", analysis.detail, name="detail"),
    path("<int:pk>/advice/", advice.advice, name="advice"),
    path("<int:pk>/adopt/", savings.adopt, name="adopt"),
    path("<int:pk>/mention/", savings.mention, name="mention"),
    path("history/selection/", selection.choose, name="selection"),
    path("history/tag/", selection.tag, name="tag"),
    path("history/delete/", selection.delete, name="delete"),
    path("history/views/", history.save_current, name="save-view"),
    path("history/views/<int:pk>/delete/", history.delete_view, name="delete-view"),
    path("<int:pk>/labels/", labels.labels, name="labels"),
    path("<int:pk>/cancel/", analysis.cancel, name="cancel"),
    path("<int:pk>/live/", analysis.live, name="live"),
    path("<int:pk>/log/", analysis.log, name="log"),
    path("<int:pk>/run-again/", analysis.run_again, name="run-again"),
    path("<int:pk>/training-runs/", training_runs.upload, name="upload-runs"),
    path("<int:pk>/share/", sharing.share, name="share"),
    path("share-links/<int:pk>/revoke/", sharing.revoke, name="revoke-link"),
    path("shared/<str:token>/", sharing.shared, name="shared"),
    path("<int:pk>/take-back/", savings.undo_adoption, name="take-back"),
    path("<int:pk>/worth/", savings.estimate, name="estimate"),
]
