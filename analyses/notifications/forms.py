"""The form of a member's choices."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings

from analyses.models import NotificationChoices
from analyses.notifications.address import LONGEST_URL, WrongAddress, parse, resolve
from analyses.notifications.channels import HOW_TO_SEND_EMAIL, NO_ADDRESS, sends_email
from analyses.notifications.webhook import LIMIT_SECONDS

LONGEST_SECONDS = 7 * 24 * 3600


class ChoicesForm(forms.ModelForm[NotificationChoices]):
    """E-mail, webhook, and how long an analysis has to take to be told of."""

    by_email = forms.BooleanField(required=False, label="E-mail me")
    by_webhook = forms.BooleanField(required=False, label="Call a webhook")
    webhook_url = forms.CharField(
        required=False,
        max_length=LONGEST_URL,
        label="Webhook URL",
        help_text="https:// or http://, at a public address.",
        widget=forms.URLInput(attrs={"placeholder": "https://", "inputmode": "url"}),
    )
    only_after_seconds = forms.IntegerField(
        min_value=0,
        max_value=LONGEST_SECONDS,
        label="Only when it took longer than (seconds)",
        help_text="Counted from when it was queued until it ended.",
        widget=forms.NumberInput(attrs={"inputmode": "numeric"}),
    )

    class Meta:
        model = NotificationChoices
        fields = ("by_email", "by_webhook", "webhook_url", "only_after_seconds")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._why_no_email = why_no_email(self.instance.member.email)
        told = self._why_no_email or f"to {self.instance.member.email}, the address of your account"
        self.fields["by_email"].help_text = f"{told[0].upper()}{told[1:]}."

    def clean_by_email(self) -> bool:
        """Refuse what would never arrive."""
        wanted = bool(self.cleaned_data["by_email"])
        if wanted and self._why_no_email:
            raise forms.ValidationError(f"Not possible: {self._why_no_email}.")
        return wanted

    def clean_webhook_url(self) -> str:
        """Check the address, and those that its name has now; they are checked again at sending."""
        url = str(self.cleaned_data["webhook_url"])
        if not url:
            return url
        try:
            resolve(parse(url), settings.WEBHOOK_HOSTS, LIMIT_SECONDS)
        except (WrongAddress, OSError) as error:
            raise forms.ValidationError(f"Not possible: {error}.") from error
        return url

    def clean(self) -> dict[str, Any]:
        """A webhook to be called needs a URL."""
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if data.get("by_webhook") and data.get("webhook_url") == "":
            self.add_error("webhook_url", "Give the URL to call.")
        return data


def why_no_email(address: str) -> str:
    """What keeps this site from writing to a member; empty if nothing does."""
    if not sends_email():
        return HOW_TO_SEND_EMAIL
    return "" if address else NO_ADDRESS
