"""The part of `spmark calibrate` that belongs to STile."""

from __future__ import annotations

from typing import Any, ClassVar

from spmark.impls.core.devicespec import DeviceSpec


class TileCalibration:
    """Measures the tiles of the cost model (`spmark.studies.contracts`)."""

    what: ClassVar[str] = "tiles"

    def calibrate(self, device: DeviceSpec) -> tuple[DeviceSpec, list[dict[str, Any]]]:
        """Measure tiles of every operator and dtype; about a minute."""
        from spmark.studies.stile.gpu import calibrate

        calibrated, fits = calibrate(device)
        agreement = [
            {
                "operator": str(fit.calibration.op),
                "dtype": str(fit.calibration.dtype),
                "block tiles": len(fit.calibration.blocks),
                "tiles held out": fit.agreement.count,
                "Pearson": round(fit.agreement.pearson, 4),
                "RMSE, us": round(fit.agreement.rmse * 1e3, 4),
                "predicted and measured, us": fit.held_out_us,
            }
            for fit in fits
        ]
        return calibrated, agreement
