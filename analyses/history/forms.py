"""The small forms around the history."""

from __future__ import annotations

from django import forms

from analyses.history.labels import BadTags, tags_from
from analyses.models import Note, SavedView


class TagsField(forms.CharField):
    """Names of tags with commas between them; its value is the list of names."""

    def clean(self, value: object) -> list[str]:
        """The names.

        Raises:
            ValidationError: They cannot be tags.
        """
        try:
            return tags_from(super().clean(value))
        except BadTags as error:
            raise forms.ValidationError(f"{error}.") from error


class TagSelectionForm(forms.Form):
    """Tags to put on several analyses, or to take off them."""

    tags = TagsField(help_text="With commas between them, such as: baseline, thesis.")


class LabelsForm(forms.Form):
    """The tags and the note of one analysis."""

    tags = TagsField(
        required=False,
        help_text="With commas between them, such as: baseline, thesis. Your whole lab sees them.",
    )
    note = forms.CharField(
        required=False, max_length=Note.LONGEST, widget=forms.Textarea(attrs={"rows": 3})
    )


class SaveViewForm(forms.Form):
    """A name for what the history shows now.

    ``query`` is taken as it stands in the address; whoever stores it keeps what the history knows.
    """

    name = forms.CharField(max_length=SavedView.LONGEST_NAME)
    query = forms.CharField(required=False, max_length=5000)
    is_shared = forms.BooleanField(required=False)
