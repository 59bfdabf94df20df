"""Statistical efficiency and time to accuracy, against values worked out by hand (method.md §10)."""

from worldsize.analysis.training import EpochAnalysis, common_target, samples_to


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


def test_samples_to_a_target_are_those_of_the_first_evaluation_that_reaches_it() -> None:
    assert samples_to(history(0.3, 0.6, 0.5, 0.9), 0.6) == 2000
    assert samples_to(history(0.3, None, 0.7), 0.6) == 3000
    assert samples_to(history(0.3), 0.6) is None
