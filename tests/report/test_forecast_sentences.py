"""What is said of the errors of a forecast."""

import pytest

from worldsize.report.forecast_tables import error_text
from worldsize.results.forecast_records import ForecastReport, HeldOut


def report(*errors: tuple[float, float | None, float | None]) -> ForecastReport:
    cells = [
        HeldOut(
            cell=f"ddp-w2-b{place}",
            measured_s=1.0,
            predicted_s=1 + own,
            error=own,
            in_band=1.0,
            amdahl_error=amdahl,
            power_error=power,
        )
        for place, (own, amdahl, power) in enumerate(errors)
    ]
    return ForecastReport(run="run", rows=[], assumes=[], knees=[], held_out=cells)


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        (
            [(0.38, 0.2, -0.26), (-0.3, -0.21, 0.4)],
            "Amdahl's law is nearer to these cells: take the forecast",
        ),
        ([(0.1, 0.6, -0.05), (-0.1, 0.6, 0.05)], "The formula with γ is nearer to these cells"),
        ([(0.02, 0.6, -0.05)], None),
        ([(0.3, None, None), (0.3, 0.1, 0.1)], None),  # a formula that does not know all cells is not compared
    ],
)
def test_a_formula_that_is_nearer_is_named(
    errors: list[tuple[float, float | None, float | None]], told: str | None
) -> None:
    text = error_text(report(*errors))
    assert (told or "Its own error") in text
    assert ("nearer" in text) == (told is not None)
