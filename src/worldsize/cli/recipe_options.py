"""The flags of the recipe: how gradients change the weights, and what the rate is when."""

from typing import Annotated

from worldsize.cli.help import RECIPE, flag

LearningRate = Annotated[float | None, flag("Learning rate at the base batch (--base-batch).", RECIPE)]
Optimizer = Annotated[
    str | None,
    flag("Optimizer; muon suits short trainings at a rate of about 0.015.", RECIPE, choices="optimizer"),
]
LrScaling = Annotated[
    str | None,
    flag(
        "Learning-rate scaling with the global batch: by B/B0 or its root.",
        RECIPE,
        choices="lr_scaling",
    ),
]
BaseBatch = Annotated[int | None, flag("Base batch B0: the global batch that --learning-rate is for.", RECIPE)]
LrWarmupEpochs = Annotated[float | None, flag("Learning-rate warm-up, in epochs.", RECIPE)]
LrSchedule = Annotated[
    str | None,
    flag("Learning-rate schedule; step divides by 10 after 1/2 and 3/4 of the epochs.", RECIPE, choices="lr_schedule"),
]
Momentum = Annotated[float | None, flag("Momentum.", RECIPE)]
Nesterov = Annotated[bool | None, flag("Nesterov momentum.", RECIPE, "--nesterov")]
WeightDecay = Annotated[float | None, flag("Weight decay.", RECIPE)]
LabelSmoothing = Annotated[float | None, flag("Label smoothing.", RECIPE)]
ClipNorm = Annotated[float | None, flag("Clip the norm of all gradients together to this value.", RECIPE)]
LeaveOut = Annotated[
    str | None,
    flag("Demonstrate mistakes: leave out what ranks agree on.", RECIPE, several="leave_out"),
]
AccuracyEpochs = Annotated[int | None, flag("ddp-large-batch: epochs of the accuracy runs.", RECIPE)]
AccuracyBatch = Annotated[int | None, flag("ddp-large-batch: local batch of N workers in these.", RECIPE)]
AccuracyBaseBatch = Annotated[int | None, flag("ddp-large-batch: batch of one worker in these.", RECIPE)]
Seeds = Annotated[int | None, flag("Repeat each training with K seeds, from --seed upwards.", RECIPE)]
TargetAccuracy = Annotated[
    str | None,
    flag("Target test accuracy, such as 0.8 or 80%: compare the epochs and time to reach it.", RECIPE, metavar="SHARE"),
]
