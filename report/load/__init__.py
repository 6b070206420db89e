"""What was recorded, as frames of facts: records, candidates of searches, results of airspeed velocity."""
