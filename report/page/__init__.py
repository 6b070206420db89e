"""The report as a whole: what it says, and how it is written as HTML and Markdown."""
