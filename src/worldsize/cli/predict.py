"""`worldsize predict`: what was not measured, from what was."""

from worldsize.cli import options as o
from worldsize.cli.flags import Flags, takes


@takes("PredictSettings", strategy="strategies")
def predict(flags: Flags, run: o.Run, as_json: o.Json = False) -> None:
    """Predict other world sizes, links and strategies from a run.

    Runs nothing. Each number has a band that holds nine in ten steps, and the forecast reports its error on the
    run's own cells. The run folder and its page keep the forecast.
    """
    from worldsize.analysis.predict.answer import answer
    from worldsize.analysis.study import analyse
    from worldsize.cli.forecast_display import print_forecast
    from worldsize.cli.output import print_json
    from worldsize.cli.results import exit_for_damage
    from worldsize.config import PredictSettings, validated
    from worldsize.report.write import write_report
    from worldsize.results.folder import load_run
    from worldsize.results.forecast_records import write_forecast

    settings = validated(PredictSettings, flags.of("PredictSettings"))
    analysis = analyse(load_run(run))
    report = answer(analysis, settings)
    write_forecast(run, report)
    page = write_report(run, analysis)
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        print_forecast(report)
        print(f"\nreport: {page}")
    exit_for_damage(damaged=analysis.damaged)
