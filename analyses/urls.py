"""Addresses of the pages, mounted at the site's root."""

from django.urls import path

from analyses import views
from analyses.compare import views as compare
from analyses.history import saved_view_views as saved_views
from analyses.history import selection_views as selection
from analyses.history import views as history
from analyses.lab import views as lab
from analyses.lookups import advice_views, preview_views
from analyses.notifications import views as notifications
from analyses.overview import overview
from analyses.savings import views as savings
from analyses.sharing import views as sharing

app_name = "analyses"

urlpatterns = [
    path("", overview, name="overview"),
    path("history/", history.history, name="list"),
    path("history/export.csv", history.export_csv, name="export-csv"),
    path("history/export.json", history.export_json, name="export-json"),
    path("compare/", compare.compare, name="compare"),
    path("compare/bars.svg", compare.bars, name="compare-bars"),
    path("gpus/", views.gpus, name="gpus"),
    path("gpus/price/", lab.price, name="gpu-price"),
    path("lab/", lab.lab, name="lab"),
    path("new/", views.new, name="new"),
    path("new/preview/", preview_views.preview, name="preview"),
    path("new/preview/<int:pk>/", preview_views.preview_state, name="preview-state"),
    path("notifications/", notifications.choose, name="notifications"),
    path("notifications/secret/", notifications.renew_secret, name="notifications-secret"),
    path("notifications/test/", notifications.send_test, name="notifications-test"),
    path("savings/", savings.savings, name="savings"),
    path("savings/totals.csv", savings.totals_as_csv, name="savings-totals-csv"),
    path("savings/analyses.csv", savings.analyses_as_csv, name="savings-analyses-csv"),
    path("<int:pk>/", views.detail, name="detail"),
    path("<int:pk>/advice/", advice_views.advice, name="advice"),
    path("<int:pk>/adopt/", savings.adopt, name="adopt"),
    path("history/selection/", selection.choose, name="selection"),
    path("history/tag/", selection.tag, name="tag"),
    path("history/delete/", selection.delete, name="delete"),
    path("history/views/", saved_views.save, name="save-view"),
    path("history/views/<int:pk>/delete/", saved_views.delete, name="delete-view"),
    path("<int:pk>/labels/", history.labels, name="labels"),
    path("<int:pk>/cancel/", views.cancel, name="cancel"),
    path("<int:pk>/live/", views.live, name="live"),
    path("<int:pk>/log/", views.log, name="log"),
    path("<int:pk>/run-again/", views.run_again, name="run-again"),
    path("<int:pk>/share/", sharing.share, name="share"),
    path("share-links/<int:pk>/revoke/", sharing.revoke, name="revoke-link"),
    path("shared/<str:token>/", sharing.shared, name="shared"),
    path("<int:pk>/take-back/", savings.take_back, name="take-back"),
    path("<int:pk>/worth/", savings.worth, name="worth"),
]
