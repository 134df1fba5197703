"""The charts of an answer, as plain plotly figures, and its memory bars.

A figure is a dictionary that goes to the page as JSON. The plotly package is not imported: it takes
long to load, and only its JavaScript is needed. Colours are names of the stylesheet
(``var(--…)``), which the page's script resolves, so that the charts follow the theme.
"""
