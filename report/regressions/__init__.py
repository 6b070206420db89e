"""Two sets of records beside each other: what became slower, and how far runs of one code lie apart."""
