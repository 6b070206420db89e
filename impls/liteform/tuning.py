"""What `spmark.impls.liteform.gpu` takes from `spmark.impls.liteform.study.tuning`."""

from spmark.impls.liteform.study.tuning import COUNTED, ScheduleRow, Timed

__all__ = ["COUNTED", "ScheduleRow", "Timed"]
