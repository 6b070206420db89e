"""Figures with the numbers that they draw; ``all`` lists them, ``panels`` has the parts that they share."""
