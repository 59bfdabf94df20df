"""The flags of the recipe: how gradients change the weights, and what the rate is when."""

from typing import Annotated

from worldsize.cli.help import RECIPE, flag

LearningRate = Annotated[float | None, flag("Learning rate, of the base batch.", RECIPE)]
Optimizer = Annotated[
    str | None, flag("Optimizer; muon is for few updates, at a rate of about 0.015.", RECIPE, choices="optimizer")
]
LrScaling = Annotated[
    str | None,
    flag("How the rate grows with the global batch B: not, with B/B0, or with its root.", RECIPE, choices="lr_scaling"),
]
BaseBatch = Annotated[int | None, flag("B0: the global batch that --learning-rate belongs to.", RECIPE)]
LrWarmupEpochs = Annotated[float | None, flag("Epochs in which the rate grows to that of B.", RECIPE)]
LrSchedule = Annotated[
    str | None,
    flag("How the rate falls over the epochs; step: by ten at 1/2 and 3/4.", RECIPE, choices="lr_schedule"),
]
Momentum = Annotated[float | None, flag("Share of the last step that stays in the next.", RECIPE)]
Nesterov = Annotated[bool | None, flag("Use Nesterov's momentum.", RECIPE, "--nesterov")]
WeightDecay = Annotated[float | None, flag("Share of the weights that goes into each step.", RECIPE)]
LabelSmoothing = Annotated[float | None, flag("Share of the label given to all classes alike.", RECIPE)]
ClipNorm = Annotated[float | None, flag("Scale all gradients together down to at most this norm.", RECIPE)]
LeaveOut = Annotated[
    str | None, flag("For demonstrations: what is not agreed on, by commas.", RECIPE, several="leave_out")
]
AccuracyEpochs = Annotated[int | None, flag("ddp-large-batch: epochs of the runs that compare accuracy.", RECIPE)]
AccuracyBatch = Annotated[int | None, flag("ddp-large-batch: local batch of N workers in these runs.", RECIPE)]
AccuracyBaseBatch = Annotated[int | None, flag("ddp-large-batch: batch of one worker in these runs.", RECIPE)]
Seeds = Annotated[int | None, flag("Train whole epochs with K seeds: --seed, and those after it.", RECIPE)]
TargetAccuracy = Annotated[
    str | None,
    flag("Test accuracy, set beforehand, at which trainings are compared: 0.8 or 80%.", RECIPE, metavar="SHARE"),
]
