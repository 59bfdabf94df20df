"""Planted errors in tables that are no plain scaling table."""

import random
from collections.abc import Callable
from dataclasses import replace

from audit_families import bandwidth, gradients, parts, percents, ranks, sizes, volumes
from audit_kind import Kind, cell, factor
from audit_more_families import accumulation, accuracies, batch_rows, fractions_printed, summary
from audit_numbers import Style
from audit_studies import scaling
from audit_truth import Column, Study, drawn_setting
from audit_words import CIFAR10, MODELS


def _no_accumulation(study: Study, rng: random.Random) -> bool:
    grid = study.table
    grid.drop("steps")
    grid.column("B").values = [n * b for n, b in zip(grid.column("n").values, grid.column("b").values, strict=True)]
    return True


def _no_n(study: Study, rng: random.Random) -> bool:
    grid = study.table
    grid.drop("steps")
    pairs = zip(study.facts["accumulation"], grid.column("b").values, strict=True)
    grid.column("B").values = [k * b for k, b in pairs]
    return True


def _parts_sum(study: Study, rng: random.Random) -> bool:
    study.table.drop("comm%")
    cell(study.table, "total", rng)
    return True


def _share_cell(study: Study, rng: random.Random) -> bool:
    if not study.table.has("comm%"):
        return False
    column = study.table.column("comm%")
    row = rng.randrange(1, len(column.values))
    column.values[row] += rng.choice((0.12, 0.2, 0.3))
    return True


def _shares_sum(study: Study, rng: random.Random) -> bool:
    study.table.drop("seconds")
    column = study.table.column("share")
    column.values[rng.randrange(len(column.values))] += rng.uniform(0.1, 0.25)
    return True


def _average(study: Study, rng: random.Random) -> bool:
    if study.facts["total"]:
        return False
    column = study.table.column("value")
    column.values[-1] = rng.choice((max(column.values[:-1]) * 1.15, min(column.values[:-1]) * 0.85))
    return column.width() < 0.03


def _total(study: Study, rng: random.Random) -> bool:
    column = study.table.column("value")
    column.values[-1] *= factor(rng, column)
    return bool(study.facts["total"])


def _no_whole_image(study: Study, rng: random.Random) -> bool:
    """An accuracy between two numbers of images, further than its last digit from both."""
    column, test = study.table.column("accuracy"), study.facts["test"]
    study.table.bold = set()
    study.before = [text for text in study.before if "bold" not in text]
    column.style = Style(3 if test == 10000 else rng.randint(2, 3), scale=0.01)
    rows = rng.choice((range(len(column.values)), [rng.randrange(len(column.values))]))
    for row in rows:
        column.values[row] = (round(column.values[row] * test) + rng.uniform(0.4, 0.6)) / test
    return bool(0.01 * 10.0**-column.style.digits * test < 0.3)


def _thousand_classes(study: Study, rng: random.Random) -> bool:
    if study.facts["data"] is not CIFAR10:
        return False
    grid = study.table
    row = rng.randrange(len(grid.columns[0].values))
    grid.column("params").values[row] = float(study.facts["models"][row].full)
    grid.column("bytes").values[row] = 4.0 * study.facts["models"][row].full
    return True


def _ten_times(study: Study, rng: random.Random) -> bool:
    grid = study.table
    row = rng.randrange(len(grid.columns[0].values))
    for key in ("params", "bytes"):
        grid.column(key).values[row] *= 10
    return True


def _gib(study: Study, rng: random.Random) -> bool:
    column = study.table.column("bytes")
    ratio = 1e9 / 2**30 if "GB" in column.head else 1e6 / 2**20
    rows = rng.choice((range(len(column.values)), [rng.randrange(len(column.values))]))
    for row in rows:
        column.values[row] *= ratio
    return column.width() < 0.01


def _bandwidth(ratio: float) -> Callable[[Study, random.Random], bool]:
    def change(study: Study, rng: random.Random) -> bool:
        column = study.table.column("bandwidth")
        column.values = [value * ratio for value in column.values]
        return column.width() < 0.05

    return change


def _epoch_time(study: Study, rng: random.Random) -> bool:
    column, steps = study.table.column("bandwidth"), study.facts["truth"].steps
    column.values = [value / count for value, count in zip(column.values, steps, strict=True)]
    column.style, column.head = Style(2, scale=1e6), "Bandwidth (MB/s)"
    return column.width() < 0.05


def _all_steps(study: Study, rng: random.Random) -> bool:
    """The volume of an epoch as if every worker did all steps of one."""
    grid, truth, size = study.table, study.facts["truth"], study.facts["size"]
    volume, speed = grid.column("volume"), grid.column("bandwidth")
    speed.values = [value * n for value, n in zip(speed.values, truth.N, strict=True)]
    volume.values = [steps * n * size for steps, n in zip(truth.steps, truth.N, strict=True)]
    return True


def _factor(study: Study, rng: random.Random) -> bool:
    facts, grid = study.facts, study.table
    if facts["name"] == "broadcast" or facts["N"] < 4:
        return False
    n = facts["N"]
    others = (1.0, (n - 1) / n) if facts["name"] == "all-reduce" else (2 * (n - 1) / n, 1 / n)
    wrong = rng.choice(others)
    grid.column("busbw").values = [value * wrong for value in grid.column("algbw").values]
    study.before[0] = study.before[0].split(", connected by")[0] + "."
    return True


def _above_link(study: Study, rng: random.Random) -> bool:
    more = rng.uniform(2.3, 4.0)
    bus = study.table.column("busbw").values
    study.table.column("time").style = Style(2, scale=1e-6)
    seconds = [
        size * study.facts["factor"] / (value * more)
        for size, value in zip(study.table.column("size").values, bus, strict=True)
    ]
    study.table.column("time").values = seconds
    algorithm = [size / each for size, each in zip(study.table.column("size").values, seconds, strict=True)]
    study.table.column("algbw").values = algorithm
    study.table.column("busbw").values = [value * study.facts["factor"] for value in algorithm]
    return True


def _hardware(study: Study, rng: random.Random) -> bool:
    rows = len(study.table.column("n").values)
    older, newer = rng.choice((("V100", "A100"), ("A100", "H100"), ("T4", "V100")))
    kinds = [older] * (rows - 1) + [newer]
    study.table.columns.insert(1, Column("hardware", rng.choice(("GPU", "GPU type", "Hardware")), kinds))
    return bool(study.facts["setting"].nouns[1] == "GPU")


def _ranks(study: Study, rng: random.Random) -> bool:
    grid = study.table
    compute = grid.column("compute")
    compute.values = [value * rng.uniform(0.8, 1.25) for value in compute.values]
    exchange = [rng.uniform(0.02, 0.022) for _ in compute.values]
    grid.column("comm").values = exchange
    grid.column("step").values = [a + b for a, b in zip(compute.values, exchange, strict=True)]
    whole = grid.column("step").values
    return bool(max(whole) > 1.12 * min(whole))


def _too_large(rng: random.Random) -> Study:
    data = CIFAR10 if rng.random() < 0.6 else replace(CIFAR10, name="the leaf-scan data set", train=24000)
    setting = replace(drawn_setting(rng, "weak"), data=data, model=rng.choice(MODELS), ladder=(8, 16, 32, 64))
    return scaling(rng, "B", "rate", setting=replace(setting, b=rng.choice((1024, 2048))))


def _flat(study: Study, rng: random.Random) -> bool:
    column = study.table.column("epoch")
    column.values = [column.values[0] * rng.gauss(1, 0.002) for _ in column.values]
    return len(column.values) > 4 and column.width() < 0.01


def _serial(study: Study, rng: random.Random) -> bool:
    column = study.table.column("fraction")
    N = study.facts["truth"].N
    if rng.random() < 0.5:
        column.values = [None if v is None else v * (1 - 1 / n) for v, n in zip(column.values, N, strict=True)]
    else:
        column.values[rng.randrange(1, len(N))] *= rng.choice((0.6, 1.5, 1.9))
    return True


def _yes(study: Study, rng: random.Random) -> bool:
    return True


MORE: tuple[Kind, ...] = (
    Kind("global batch: accumulation forgotten", accumulation, _no_accumulation, "global-batch"),
    Kind("global batch: N forgotten", accumulation, _no_n, "global-batch"),
    Kind("parts: not the stated total", parts, _parts_sum, "parts"),
    Kind("percent: not part ÷ whole", parts, _share_cell, "percent"),
    Kind("percent: not 100 together", percents, _shares_sum, "percent"),
    Kind("summary: average outside all values", summary, _average, "summary-row"),
    Kind("summary: wrong total", summary, _total, "summary-row"),
    Kind("accuracy: no whole number of images", accuracies, _no_whole_image, "accuracy-images"),
    Kind("parameters: 1000 classes for 10", sizes, _thousand_classes, "parameters"),
    Kind("parameters: ten times as many", sizes, _ten_times, "parameters"),
    Kind("bytes: GiB called GB", sizes, _gib, "bytes-unit"),
    Kind("bandwidth: elements for bytes", gradients, _bandwidth(0.25), "bandwidth"),
    Kind("bandwidth: bits for bytes", gradients, _bandwidth(8.0), "bandwidth"),
    Kind("bandwidth: a step's bytes, an epoch's time", volumes, _epoch_time, "bandwidth"),
    Kind("bandwidth: steps not divided by N", volumes, _all_steps, "bandwidth"),
    Kind("bus bandwidth: wrong factor", bandwidth, _factor, "busbw"),
    Kind("bandwidth above the link", bandwidth, _above_link, "link-peak"),
    Kind(
        "rows differ: hardware",
        lambda rng: scaling(rng, "speedup", "epoch", mode=rng.choice(("batch", "data"))),
        _hardware,
        "rows-differ",
    ),
    Kind("ranks of one step with different times", ranks, _ranks, "rank-times"),
    Kind("batch larger than the data set", _too_large, _yes, "batch-above-data"),
    Kind("flat over the batch", batch_rows, _flat, "flat-over-batch"),
    Kind("serial fraction", fractions_printed, _serial, "serial-fraction"),
)
