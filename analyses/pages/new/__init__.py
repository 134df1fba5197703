"""The page of a new analysis: the form, and a prediction for the settings as they are typed."""
