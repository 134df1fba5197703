"""The page where members choose how to be notified, and of what."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from analyses.jobs.kinds import NOTIFICATION_PAUSES
from analyses.lab.settings import lab_settings
from analyses.models import Event, Notification, NotificationChoices
from analyses.models.notifications import MAX_URL_LENGTH
from analyses.notifications import channels, message
from analyses.notifications.address import WrongAddress, parse, resolve
from analyses.notifications.channels import HOW_TO_SEND_EMAIL, NO_ADDRESS
from analyses.notifications.lab_channel import NOT_SET_UP
from analyses.notifications.webhook import LIMIT_SECONDS, NotDelivered
from analyses.pages.access import MemberRequest
from memorymark_site.accounts.mail import sends_email
from memorymark_site.accounts.roles import Role, needs

SHOWN_NOTIFICATIONS = 20


@needs(Role.VIEWER)  # a former member can still turn notifications off
@never_cache  # it shows a secret
@require_http_methods(["GET", "HEAD", "POST"])
def choose(request: MemberRequest) -> HttpResponse:
    """The choices, the secret, and the latest notifications."""
    form = ChoicesForm(request.POST or None, instance=channels.choices_of(request.user))
    if request.method == "POST" and form.is_valid():
        channels.save_choices(request.user, form.cleaned_data)
        messages.success(request, "Saved.")
        return redirect("analyses:notifications")
    mine = Notification.objects.filter(analysis__owner=request.user).select_related(
        "analysis", "job", "entry"
    )
    context = {
        "form": form,
        "chosen": channels.choices_of(request.user),
        "notifications": mine.defer("analysis__request", "analysis__result")[:SHOWN_NOTIFICATIONS],
        "most_tries": len(NOTIFICATION_PAUSES) + 1,
        "nav": "notifications",
    }
    return render(request, "notifications/choose.html", context)


@require_POST
def renew_secret(request: MemberRequest) -> HttpResponse:
    """Replace the secret that messages are signed with."""
    if channels.renew_secret(request.user):
        messages.success(request, "New secret created. It signs all messages from now on.")
    return redirect("analyses:notifications")


@require_POST
def send_test(request: MemberRequest) -> HttpResponse:
    """Send a test through each channel that is on, and show what happened."""
    chosen = channels.choices_of(request.user)
    ways = channels.channels_of(chosen)
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


MAX_SECONDS = 7 * 24 * 3600


def _events(way: str) -> forms.MultipleChoiceField:
    return forms.MultipleChoiceField(
        required=False,
        choices=Event.choices,
        widget=forms.CheckboxSelectMultiple,
        label=f"Notify me {way} when",
    )


class ChoicesForm(forms.ModelForm[NotificationChoices]):
    """E-mail, webhook, and how long an analysis has to take to be worth a notification."""

    by_email = forms.BooleanField(required=False, label="E-mail me")
    email_events = _events("by e-mail")
    by_webhook = forms.BooleanField(required=False, label="Call a webhook")
    webhook_url = forms.CharField(
        required=False,
        max_length=MAX_URL_LENGTH,
        label="Webhook URL",
        help_text="An https:// or http:// URL with a public address.",
        widget=forms.URLInput(attrs={"placeholder": "https://", "inputmode": "url"}),
    )
    webhook_events = _events("by webhook")
    by_lab_channel = forms.BooleanField(
        required=False,
        label="Post to the lab's channel",
        help_text="With your name, for everyone there to read.",
    )
    lab_channel_events = _events("in the lab's channel")
    only_after_seconds = forms.IntegerField(
        min_value=0,
        max_value=MAX_SECONDS,
        label="Only when it took longer than (seconds)",
        help_text="From queued to finished.",
        widget=forms.NumberInput(attrs={"inputmode": "numeric"}),
    )

    class Meta:
        model = NotificationChoices
        fields = (
            "by_email", "email_events", "by_webhook", "webhook_url", "webhook_events",
            "by_lab_channel", "lab_channel_events", "only_after_seconds",
        )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._why_no_email = why_no_email(self.instance.member.email)
        text = self._why_no_email or f"To {self.instance.member.email}, the address in your account"
        self.fields["by_email"].help_text = f"{text[0].upper()}{text[1:]}."

    def clean_by_email(self) -> bool:
        wanted = bool(self.cleaned_data["by_email"])
        if wanted and self._why_no_email:
            raise forms.ValidationError(f"Not possible: {self._why_no_email}.")
        return wanted

    def clean_by_lab_channel(self) -> bool:
        wanted = bool(self.cleaned_data["by_lab_channel"])
        if wanted and not lab_settings().channel_url:
            raise forms.ValidationError(f"Not possible: {NOT_SET_UP}.")
        return wanted

    def clean_webhook_url(self) -> str:
        return checked_url(str(self.cleaned_data["webhook_url"]))

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if data.get("by_webhook") and data.get("webhook_url") == "":
            self.add_error("webhook_url", "Enter the URL to call.")
        return data


def why_no_email(address: str) -> str:
    """Why this site cannot send e-mail to an address; empty if it can."""
    if not sends_email():
        return HOW_TO_SEND_EMAIL
    return "" if address else NO_ADDRESS


def checked_url(url: str) -> str:
    """The URL, if a webhook may have it and what its host resolves to, as before each request too.

    Raises:
        ValidationError: With the reason.
    """
    if not url:
        return url
    try:
        resolve(parse(url), settings.WEBHOOK_HOSTS, LIMIT_SECONDS)
    except (WrongAddress, OSError) as error:
        raise forms.ValidationError(f"Not possible: {error}.") from error
    return url
