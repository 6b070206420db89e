"""What `spmark.impls.liteform.gpu` takes from `spmark.impls.liteform.study.labels`."""

from spmark.impls.liteform.study.labels import WIDTHS

__all__ = ["WIDTHS"]
