"""What follows from facts: columns of each case, statistics, means, and groups of matrices."""
