"""The base of all records."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Base of all records: unknown keys are refused, so that a schema change is noticed."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())
