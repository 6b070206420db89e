"""Tables with what a reader must know of them, and how they are written: cells, CSV, LaTeX."""
