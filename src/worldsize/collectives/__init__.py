"""The collectives that are measured, by name, and the benchmark that measures them on every rank."""

from worldsize.collectives.operations import OPERATIONS, Operation

__all__ = ["OPERATIONS", "Operation"]
