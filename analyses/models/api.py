"""What the API keeps of what it was asked."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from analyses.models.analysis import Analysis


class IdempotencyKey(models.Model):
    """That a member has made an analysis by a request with this key; kept for a day.

    ``digest`` is that of the request's body. The row is written in the same transaction as the
    analysis: where there is one, there is the other.
    """

    LONGEST = 255
    member = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=LONGEST)
    digest = models.CharField(max_length=64)
    analysis = models.ForeignKey(Analysis, on_delete=models.CASCADE, null=True, related_name="+")
    used_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("member", "key"), name="one_analysis_of_a_key"),
        )

    def __str__(self) -> str:
        return f"key {self.key} of {self.member}"
