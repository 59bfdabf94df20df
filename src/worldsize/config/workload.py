"""What a workload of the user's own leaves no room for: what it brings itself, and what asks for epochs."""

from typing import Any

from pydantic import BaseModel

BROUGHT = (
    "model",
    "data",
    "data_dir",
    "train_samples",
    "test_samples",
    "loader",
    "loader_workers",
    "label_smoothing",
    "leave_out",
)
"""Settings of what a workload brings itself."""
OF_EPOCHS = (
    *("epochs", "checkpoint", "lr_warmup_epochs", "lr_schedule", "target_accuracy", "accuracy_epochs", "seeds"),
    "experiment",
)
"""Settings that need to know how many samples there are, or what is right."""
RECIPE = ("optimizer", "learning_rate", "lr_scaling", "base_batch", "momentum", "nesterov", "weight_decay")
"""Settings of the optimizer, for a workload that has none."""


def given(settings: BaseModel, names: tuple[str, ...]) -> list[str]:
    """Those of the settings that differ from their defaults."""
    fields = type(settings).model_fields
    return [name for name in names if name in fields and getattr(settings, name) != _usual(fields[name])]


def refuse_beside_workload(settings: Any) -> None:
    """Raise ValueError for settings that mean nothing beside `settings.workload`."""
    if settings.workload is None:
        return
    brought, of_epochs = given(settings, BROUGHT), given(settings, OF_EPOCHS)
    of_epochs += ["evaluate"] if settings.evaluate == "end" else []
    of_epochs += ["sweep"] if getattr(settings, "sweep", False) else []
    faults = []
    if getattr(settings, "accumulate", 1) > 1:
        faults.append("a workload makes its own batches, which cannot be divided here: leave out accumulate")
    if brought:
        faults.append(f"a workload brings its own model, data and loss: leave out {', '.join(brought)}")
    if of_epochs:
        faults.append(
            "a workload does not say how many samples it has, so its steps are timed: "
            f"leave out {', '.join(of_epochs)}, and give steps or budget"
        )
    if faults:
        raise ValueError("; ".join(faults))


def _usual(field: Any) -> Any:
    return field.get_default(call_default_factory=True)
