"""The target that a study without one gets (method.md §10); crossings and ratios: tests/truth."""

from worldsize.analysis.training import EpochAnalysis, common_target


def history(*accuracies: float | None, samples: int = 1000) -> list[EpochAnalysis]:
    return [
        EpochAnalysis(number, number * samples, 1.0, 0.5, 1.0, accuracy)
        for number, accuracy in enumerate(accuracies, start=1)
    ]


def test_the_target_is_the_largest_accuracy_that_all_have_reached() -> None:
    assert common_target([history(0.3, 0.8, 0.7), history(0.5, 0.6)]) == 0.6
    assert common_target([history(0.3), history(None)]) == 0.3, "one that was never evaluated says nothing"
    assert common_target([history(None)]) is None
    assert common_target([]) is None
