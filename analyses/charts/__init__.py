"""The charts of an answer as plotly figures, plain dictionaries that go to the page as JSON.

The plotly package is slow to import and only its JavaScript is needed. Colours are style sheet
variables (``var(--…)``), which the page's script resolves, so that charts follow the theme.
"""
