"""`worldsize predict`: what was not measured, from what was."""

import sys

from worldsize.cli import options as o
from worldsize.cli.flags import Flags, takes


@takes("PredictSettings", strategy="strategies")
def predict(flags: Flags, run: o.Run, as_json: o.Json = False) -> None:
    """Predict other world sizes, links and strategies from a run.

    Runs nothing. Each step time has a band in which 90 % of steps should lie. The forecast also prints its own error:
    each measured cell, predicted from the others. It is kept in the run folder and its page.
    """
    from worldsize.analysis.predict.answer import answer
    from worldsize.analysis.study import analyse
    from worldsize.cli.forecast_display import print_forecast
    from worldsize.cli.output import print_json
    from worldsize.cli.results import exit_for_damage
    from worldsize.config import PredictSettings, validated
    from worldsize.errors import OutputError
    from worldsize.report.write import write_report
    from worldsize.results.folder import load_run
    from worldsize.results.forecast_records import write_forecast

    settings = validated(PredictSettings, flags.of("PredictSettings"))
    analysis = analyse(load_run(run))
    report = answer(analysis, settings)
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        print_forecast(report)
    # The page takes 3 of 5.5 s, and the answer needs nothing of it.
    sys.stdout.flush()
    try:
        write_forecast(run, report)
        page = f"report: {write_report(run, analysis)}"
    except OutputError as error:  # a run of somebody else's
        page = f"The forecast is not kept: {str(error).splitlines()[0]}"
    if not as_json:
        print(f"\n{page}")
    exit_for_damage(damaged=analysis.damaged)
