"""More sound studies: accuracies, accumulated gradients, serial fractions, tables with an average or a total."""

import math
import random
from dataclasses import replace

from audit_numbers import Style, drawn
from audit_truth import Column, Grid, Study, drawn_setting, measured
from audit_words import CIFAR10, MODELS, heading


def accuracies(rng: random.Random) -> Study:
    """Accuracy after training, by N or by optimizer: always a whole number of test images."""
    test = rng.choice((10000, 10000, 1319, 2500, 7813))
    data = replace(CIFAR10, name="our own data set", test=test) if test != 10000 else CIFAR10
    ladder = rng.choice(((1, 2, 4, 8), (1, 2, 4), (2, 4, 8, 16)))
    best = rng.uniform(0.75, 0.94)
    values = [round((best + rng.gauss(0, 0.004)) * test) / test for _ in ladder]
    loss = [rng.uniform(0.2, 0.4) for _ in ladder]
    columns = [Column("n", heading(rng, "n", ("GPUs", "GPU")), list(ladder))]
    style = Style(rng.randint(2, 3), scale=0.01)
    columns.append(
        Column("accuracy", rng.choice(("Test accuracy (%)", "Accuracy (%)", "Test acc. (%)")), values, style)
    )
    if rng.random() < 0.6:
        columns.append(Column("loss", "Training loss", loss, Style(rng.randint(3, 4))))
    words = [f"{rng.choice(MODELS).name} on {data.name} after one run of 30 epochs; the test set has {test:,} images."]
    grid = Grid(columns)
    if rng.random() < 0.5:
        grid.bold = {(row, "accuracy") for row, value in enumerate(values) if value == max(values)}
        words.append("The best accuracy is bold.")
    return Study("accuracies", words, [grid], facts={"test": test})


def accumulation(rng: random.Random) -> Study:
    """Micro-batches, accumulation and the global batch that follows."""
    setting = drawn_setting(rng, "data")
    micro = min(setting.b, 32)
    rows = [(n, rng.choice((2, 4)) if rng.random() < 0.6 else 8) for n in setting.ladder]
    _, one = setting.nouns
    total = [n * micro * k for n, k in rows]
    columns = [Column("n", heading(rng, "n", setting.nouns), [n for n, _ in rows])]
    columns.append(Column("b", rng.choice((f"Micro-batch per {one}", f"Batch per {one}")), [micro for _ in rows]))
    columns.append(Column("accumulation", "Gradient accumulation steps", [k for _, k in rows]))
    columns.append(Column("B", rng.choice(("Global batch size", "Effective batch size")), total))
    steps = [math.ceil(setting.data.train / each) for each in total]
    if rng.random() < 0.5:
        columns.append(Column("steps", "Optimizer steps per epoch", steps))
    item = "sequences" if setting.data.length > 1 else setting.data.item
    words = [f"{setting.model.name} on {setting.data.name} ({setting.data.train:,} training {item}), data-parallel."]
    return Study(
        "accumulation", words, [Grid(columns)], facts={"setting": setting, "accumulation": [k for _, k in rows]}
    )


def fractions_printed(rng: random.Random) -> Study:
    """Speed-ups with the serial fraction of Karp and Flatt, or of Amdahl's law."""
    setting = drawn_setting(rng, "batch")
    setting = replace(setting, ladder=tuple(n for n in (1, 2, 4, 8, 16)[: rng.randint(3, 5)]), b=384)
    truth = measured(rng, setting)
    values = [truth.step[0] / each for each in truth.step]
    made = Column("speedup", "Speedup", values, Style(rng.randint(3, 4)))
    used = made.seen() if rng.random() < 0.5 else values
    serial = [None, *((1 / s - 1 / n) / (1 - 1 / n) for s, n in zip(used[1:], truth.N[1:], strict=True))]
    head = rng.choice(("Karp-Flatt", "Karp–Flatt metric", "Karp-Flatt serial fraction"))
    columns = [Column("n", heading(rng, "n", setting.nouns), truth.N)]
    if rng.random() < 0.6:
        columns.append(Column("step", "Step time (ms)", truth.step, Style(3, scale=1e-3)))
    columns += [made, Column("fraction", head, serial, Style(rng.randint(3, 4)))]
    words = [f"Strong scaling of {setting.model.name} on {setting.data.name}, global batch {setting.b}."]
    words.append("The Karp–Flatt metric is (1/S − 1/N) / (1 − 1/N) of a speed-up S.")
    return Study("fractions", words, [Grid(columns)], facts={"setting": setting, "truth": truth})


def summary(rng: random.Random) -> Study:
    """Nodes, runs or epochs one by one, with an average or a total in the last row."""
    count = rng.randint(3, 6)
    kind = rng.choice(("Run", "Node", "Epoch"))
    total = (kind == "Node" and rng.random() < 0.6) or (kind == "Epoch" and rng.random() < 0.5)
    seconds = [rng.uniform(40, 60) * rng.choice((1.0, 1.0)) for _ in range(count)]
    columns = [Column("row", kind, [*range(1, count + 1), "Total" if total else rng.choice(("Average", "Mean"))])]
    if kind == "Node":
        values, head = [rng.uniform(900, 1100) for _ in range(count)], "Throughput (images/s)"
    else:
        values, head = seconds, "Training time (s)" if kind == "Run" else "Epoch time (s)"
    style = drawn(rng, values)
    used = Column("", "", values, style).seen() if rng.random() < 0.5 else values
    columns.append(Column("value", head, [*values, math.fsum(used) / (1 if total else count)], style))
    what = {"Run": "runs of the same training", "Node": "nodes of one training", "Epoch": "epochs of one training"}[
        kind
    ]
    words = [f"The {count} {what}, {'each with' if kind == 'Node' else 'on'} {rng.choice((4, 8))} GPUs."]
    return Study("summary", words, [Grid(columns)], facts={"total": total, "count": count})


def batch_rows(rng: random.Random) -> Study:
    """Epoch times on one number of workers for several batches: larger batches have fewer steps to start."""
    setting = drawn_setting(rng, "data")
    n = rng.choice((1, 2, 4, 8))
    setting = replace(setting, data=replace(setting.data, train=max(setting.data.train, 30000)))
    sizes = [16, 32, 64, 128, 256][: rng.randint(4, 5)]
    fixed = setting.model.seconds * rng.uniform(12, 40)
    seconds = []
    for b in sizes:
        step = (fixed + b * setting.model.seconds) * rng.gauss(1, 0.003)
        seconds.append(math.ceil(setting.data.train / (b * n)) * step)
    head = rng.choice(("Batch size per GPU", "Batch per GPU", "Per-GPU batch size"))
    columns = [Column("b", head, sizes), Column("epoch", "Epoch time (s)", seconds, drawn(rng, seconds))]
    item = "sequences" if setting.data.length > 1 else setting.data.item
    words = [f"{setting.model.name} on {setting.data.name} ({setting.data.train:,} training {item})."]
    words[0] = words[0][:-1] + f", on {n} GPU{'s' if n > 1 else ''}."
    return Study("batch rows", words, [Grid(columns)], facts={"setting": setting})


def strategies(rng: random.Random) -> Study:
    """Several ways to exchange gradients, at one N, with the speed-up over the first."""
    setting = replace(drawn_setting(rng, "weak"), ladder=(rng.choice((4, 8)),))
    n, data = setting.ladder[0], setting.data
    names = rng.sample(["DDP", "DDP, fp16 compression", "FSDP", "Horovod", "Parameter server"], rng.randint(3, 4))
    seconds = [measured(rng, setting).step[0] * rng.uniform(1.0, 1.4) for _ in names]
    step = Column("step", "Step time (ms)", seconds, drawn(rng, seconds, 1e-3))
    rate = [n * setting.b * data.length / each for each in seconds]
    rates = Column("rate", f"Throughput ({data.item}/s)", rate, drawn(rng, rate))
    gain = [seconds[0] / each for each in seconds]
    speed = Column("speedup", f"Speedup over {names[0]}", gain, Style(rng.randint(2, 3)))
    words = [f"{setting.model.name} on {data.name}, {n} GPUs, batch size {setting.b} per GPU."]
    if data.length > 1:
        words.append(f"Each sequence has {data.length} tokens.")
    grid = Grid([Column("strategy", rng.choice(("Strategy", "Method")), names), step, rates, speed])
    if rng.random() < 0.4:
        grid.bold = {(rate.index(max(rate)), "rate")}
    return Study("strategies", words, [grid], facts={"setting": setting})
