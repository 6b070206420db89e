"""What papers published, what records say to it, and the scorecard; a YAML file for each paper."""
