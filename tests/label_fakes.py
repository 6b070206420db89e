"""Made-up labels in the authors' columns: sizes decide what wins, so that models have something to learn."""

from __future__ import annotations

import numpy as np

HEADER = (
    "name,num_rows,num_cols,nnz,avg_nnz_per_row,min_nnz_per_row,max_nnz_per_row,std_dev_nnz_per_row,K,"
    "best_num_partitions,best_max_bucket_width,autotuning_time(s),exe_time_hyb(ms),exe_time_naive(ms),speed_to_naive"
)


def published_csv(matrices: int = 60, seed: int = 0, widths: tuple[int, ...] = (32, 128)) -> str:
    """Give a CSV: CELL wins where the longest row is long, two partitions pay where J is 128 as well."""
    rng = np.random.default_rng(seed)
    lines = [HEADER]
    for number in range(matrices):
        rows = int(rng.integers(100, 100_000))
        mean = float(rng.uniform(1, 50))
        longest = int(rng.integers(10, 1000))
        for width in widths:
            wins = longest > 400
            cell = float(rng.uniform(0.01, 1))
            csr = cell * (1.5 if wins else 0.9) * float(rng.uniform(0.98, 1.02))
            partitions = 2 if longest > 700 and width == 128 else 1
            sizes = f"{rows},{rows},{int(rows * mean)},{mean},0,{longest},{longest / 7}"
            lines.append(f"m{number},{sizes},{width},{partitions},32,1.5,{cell},{csr},{csr / cell}")
    return "\n".join(lines) + "\n"
