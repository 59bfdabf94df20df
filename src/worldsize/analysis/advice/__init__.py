"""Advice: what limits the configurations of a study, and what to change."""

from worldsize.analysis.advice.finding import Advice as Advice
from worldsize.analysis.advice.finding import Evidence as Evidence
from worldsize.analysis.study import StudyAnalysis


def advise(analysis: StudyAnalysis) -> tuple[Advice, ...]:
    """What the numbers of a study say should be changed, the most worthwhile first; empty where they say nothing."""
    return ()
