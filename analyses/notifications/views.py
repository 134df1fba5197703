"""The page on which a member chooses how to be told of analyses that have ended."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from analyses.models import Notification
from analyses.notifications import channels, choices, message
from analyses.notifications.delivery import PAUSES
from analyses.notifications.forms import ChoicesForm
from analyses.notifications.webhook import NotDelivered
from analyses.views import MemberRequest
from memorymark_site.accounts.roles import Role, needs

SHOWN_NOTIFICATIONS = 20


@needs(Role.VIEWER)  # a personal setting: who was a member may turn off what still comes
@never_cache  # it shows a secret
@require_http_methods(["GET", "HEAD", "POST"])
def choose(request: MemberRequest) -> HttpResponse:
    """The choices, the secret, and what has become of the latest notifications."""
    form = ChoicesForm(request.POST or None, instance=choices.choices_of(request.user))
    if request.method == "POST" and form.is_valid():
        choices.save(request.user, form.cleaned_data)
        messages.success(request, "Saved.")
        return redirect("analyses:notifications")
    mine = Notification.objects.filter(analysis__owner=request.user).select_related("analysis")
    context = {
        "form": form,
        "chosen": choices.choices_of(request.user),
        "notifications": mine.defer("analysis__request", "analysis__result")[:SHOWN_NOTIFICATIONS],
        "most_tries": len(PAUSES) + 1,
        "nav": "notifications",
    }
    return render(request, "notifications/choose.html", context)


@require_POST
def renew_secret(request: MemberRequest) -> HttpResponse:
    """Replace the secret; from now on messages are signed with the new one."""
    if choices.renew_secret(request.user):
        messages.success(request, "From now on messages are signed with the new secret.")
    return redirect("analyses:notifications")


@require_POST
def send_test(request: MemberRequest) -> HttpResponse:
    """Send a test by each channel that is on, at once, and say what happened."""
    chosen = choices.choices_of(request.user)
    ways = choices.channels_of(chosen)
    if not ways:
        messages.warning(request, "Turn on e-mail or the webhook first, and save.")
    for channel in ways:
        try:
            answer = channels.send(message.of_test(), channel, chosen)
        except NotDelivered as error:
            messages.error(request, f"{channel.label}: {error}.")
        else:
            messages.success(request, f"{channel.label}: {answer}.")
    return redirect("analyses:notifications")
