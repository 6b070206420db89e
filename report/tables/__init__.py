"""Tables with notes for their reader, and how tables are written: cells, CSV, LaTeX."""
