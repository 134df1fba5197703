"""The small forms around the history."""

from __future__ import annotations

from django import forms

from analyses.history.labels import BadLabel, Labels, note_from, tags_from
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
        except BadLabel as error:
            raise forms.ValidationError(f"{error}.") from error


class NoteField(forms.CharField):
    """A text of several lines."""

    widget = forms.Textarea(attrs={"rows": 3, "maxlength": Note.LONGEST})

    def clean(self, value: object) -> str:
        """The note.

        Raises:
            ValidationError: It is too long.
        """
        try:
            return note_from(super().clean(value))
        except BadLabel as error:
            raise forms.ValidationError(f"{error}.") from error


class TagSelectionForm(forms.Form):
    """Tags to put on several analyses, or to take off them."""

    tags = TagsField(help_text="With commas between them, such as: baseline, thesis.")


class LabelsForm(forms.Form):
    """The tags and the note of one analysis.

    ``seen`` is the version of what was there when the form was opened.
    """

    tags = TagsField(
        required=False,
        help_text="With commas between them, such as: baseline, thesis. Your whole lab sees them.",
    )
    note = NoteField(required=False)
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    @classmethod
    def of(cls, labels: Labels) -> LabelsForm:
        """The form as it is opened."""
        tags = ", ".join(labels.tags)
        return cls(initial={"tags": tags, "note": labels.note, "seen": labels.version})


class SaveViewForm(forms.Form):
    """A name for what the history shows now.

    ``query`` is taken as it stands in the address; whoever stores it keeps what the history knows.
    """

    name = forms.CharField(max_length=SavedView.LONGEST_NAME)
    query = forms.CharField(required=False, max_length=5000)
    is_shared = forms.BooleanField(required=False)
