"""Sound studies that are no plain scaling table: several batches or models, bandwidths, ranks, parts, parameters."""

import math
import random
from collections.abc import Callable

from audit_more_families import accumulation, accuracies, batch_rows, fractions_printed, strategies, summary
from audit_numbers import Style, drawn, large, times
from audit_truth import Column, Grid, Study, drawn_setting, each, measured, over
from audit_words import CIFAR10, IMAGENET, MODELS, NOUNS, TEXT_MODELS, heading, parameters

COLLECTIVES: dict[str, Callable[[int], float]] = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-gather": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
}
LINKS = {"10 Gbit/s Ethernet": 1.25e9, "25 Gbit/s Ethernet": 3.125e9, "100 Gbit/s InfiniBand": 12.5e9}


def batches(rng: random.Random) -> Study:
    """Epoch times of several batches per worker, batch in columns, with speed-ups."""
    setting = drawn_setting(rng, "data")
    many, one = setting.nouns
    grid = Grid([Column("n", heading(rng, "n", setting.nouns), list(setting.ladder))])
    naming = rng.choice(("batch_{}_time (s)", "Time, batch {} (s)", "Batch {} epoch time (s)"))
    naming2 = naming.replace("time (s)", "speedup").replace("Time,", "Speedup,").replace(" (s)", "")
    naming2 = naming2.replace("epoch speedup", "speedup")
    ups = []
    for b in (setting.b // 4, setting.b // 2, setting.b):
        if b < 2:
            continue
        truth = measured(rng, type(setting)(**{**vars(setting), "b": b}))
        values = each(truth.steps, truth.step)
        grid.columns.append(Column(f"epoch:{b}", naming.format(b), values, drawn(rng, values)))
        speedups = [values[0] / value for value in values]
        ups.append(Column(f"speedup:{b}", naming2.format(b), speedups, drawn(rng, speedups)))
    grid.columns += ups
    words = [
        f"We train {setting.model.name} on {setting.data.name}. Times are of one epoch, for several batches per {one}."
    ]
    base = setting.ladder[0]
    words.append(
        f"The speed-up of each batch is its time on {base} {many if base > 1 else one} over its time on N {many}."
    )
    return Study("batches", words, [grid], facts={"setting": setting})


def models(rng: random.Random) -> Study:
    """Throughput of several models, with N in rows or in columns."""
    setting = drawn_setting(rng, "weak")
    while setting.data.length > 1:
        setting = drawn_setting(rng, "weak")
    names = rng.sample(MODELS, 3)
    rates = {}
    for model in names:
        truth = measured(rng, type(setting)(**{**vars(setting), "model": model}))
        rates[model.name] = over(truth.B, truth.step)
    words = [
        f"Throughput in images per second on {setting.data.name}; the batch is {setting.b} per {setting.nouns[1]}."
    ]
    base = setting.ladder[0]
    words.append(f"Speed-up is over {base} {setting.nouns[0 if base > 1 else 1]} with the same model.")
    style = large(rng, [value for values in rates.values() for value in values])
    facts = {"setting": setting, "rates": rates}
    if rng.random() < 0.5:
        grid = Grid([Column("n", heading(rng, "n", setting.nouns), list(setting.ladder))])
        for name, values in rates.items():
            grid.columns.append(Column(f"rate:{name}", "Images/s", values, style, group=name))
            speedups = [value / values[0] for value in values]
            grid.columns.append(Column(f"speedup:{name}", "Speedup", speedups, Style(2), group=name))
        return Study("models", words, [grid], facts=facts)
    grid = Grid([Column("model", "Model", list(rates))])
    for row, n in enumerate(setting.ladder):
        head = f"{n} {setting.nouns[0 if n > 1 else 1]}"
        grid.columns.append(Column(f"rate@{n}", head, [values[row] for values in rates.values()], style))
    words = [f"Throughput (images/s) on {setting.data.name}; the batch is {setting.b} per {setting.nouns[1]}."]
    second = Grid(
        [Column("model", "Model", list(rates))], caption=f"Speed-up over {base} {setting.nouns[0 if base > 1 else 1]}"
    )
    for row, column in enumerate(grid.columns[1:]):
        speedups = [values[row] / values[0] for values in rates.values()]
        second.columns.append(Column(column.key.replace("rate", "speedup"), column.head, speedups, Style(2)))
    last = [values[-1] for values in rates.values()]
    if rng.random() < 0.5:
        grid.bold = {(last.index(max(last)), f"rate@{setting.ladder[-1]}")}
    tables = [grid]
    if rng.random() < 0.5:
        grid.caption = "Throughput (images/s)"
        tables.append(second)
    return Study("wide", words, tables, facts=facts)


def bandwidth(rng: random.Random) -> Study:
    """Collectives by size, as nccl-tests prints them, for one N or several."""
    name = rng.choice(list(COLLECTIVES))
    n, link = rng.choice((2, 4, 8, 16)), rng.choice(list(LINKS))
    peak = LINKS[link]
    sizes = [2**power for power in range(20, 20 + rng.randint(4, 8))]
    factor = COLLECTIVES[name](n)
    bus = [peak * rng.uniform(0.75, 0.9) / (1 + 3e5 / size) for size in sizes]
    seconds = [size * factor / value for size, value in zip(sizes, bus, strict=True)]
    shown = Column("time", "time (us)", seconds, Style(rng.randint(0, 1), scale=1e-6))
    algorithm = over(sizes, shown.seen() if rng.random() < 0.5 else seconds)
    columns = [Column("size", "size (B)", list(sizes)), shown]
    columns.append(Column("algbw", "algbw (GB/s)", algorithm, Style(2, scale=1e9)))
    columns.append(Column("busbw", "busbw (GB/s)", [value * factor for value in algorithm], Style(2, scale=1e9)))
    words = [f"{name} with nccl-tests over {n} GPUs, one per node, connected by {link}.", "1 GB is 10^9 bytes."]
    return Study("bandwidth", words, [Grid(columns)], facts={"N": n, "name": name, "peak": peak, "factor": factor})


def gradients(rng: random.Random) -> Study:
    """Bytes of gradients all-reduced in a step, the time it takes, and the bandwidth that follows."""
    setting = drawn_setting(rng, rng.choice(("data", "weak")))
    setting = type(setting)(**{**vars(setting), "ladder": tuple(n for n in setting.ladder if n > 1)})
    truth = measured(rng, setting)
    count, unit = setting.parameters, rng.choice(("GB/s", "MB/s"))
    scale = {"GB/s": 1e9, "MB/s": 1e6}[unit]
    comm = Column("comm", "All-reduce time per step (ms)", truth.comm, drawn(rng, truth.comm, 1e-3))
    speed = [count * 4 / value for value in (comm.seen() if rng.random() < 0.5 else truth.comm)]
    size = Column("bytes", "Gradient size (MB)", [count * 4.0] * len(truth.N), Style(rng.randint(1, 2), scale=1e6))
    columns = [Column("n", heading(rng, "n", setting.nouns), truth.N), size, comm]
    columns.append(Column("bandwidth", f"Algorithm bandwidth ({unit})", speed, drawn(rng, speed, scale)))
    words = [f"{setting.model.name} on {setting.data.name}: {count:,} parameters, gradients in FP32 (4 bytes each)."]
    words.append("Bandwidth is gradient size divided by the time of its all-reduce; 1 MB is 10^6 bytes.")
    return Study("gradients", words, [Grid(columns)], facts={"setting": setting, "truth": truth, "count": count})


def volumes(rng: random.Random) -> Study:
    """Bytes all-reduced in an epoch."""
    setting = drawn_setting(rng, "data")
    setting = type(setting)(**{**vars(setting), "ladder": tuple(n for n in setting.ladder if n > 1)})
    truth = measured(rng, setting)
    size = setting.parameters * 4.0
    seconds, volume = each(truth.steps, truth.comm), [steps * size for steps in truth.steps]
    speed = over(volume, seconds)
    unit, style = times(rng, seconds)
    columns = [Column("n", heading(rng, "n", setting.nouns), truth.N), Column("steps", "Steps per epoch", truth.steps)]
    columns.append(Column("volume", "Gradients all-reduced per epoch (GB)", volume, drawn(rng, volume, 1e9)))
    columns.append(Column("comm", f"Communication time per epoch ({unit})", seconds, style))
    columns.append(Column("bandwidth", "Bandwidth (GB/s)", speed, drawn(rng, speed, 1e9)))
    item = "sequences" if setting.data.length > 1 else setting.data.item
    words = [
        f"{setting.model.name} on {setting.data.name} ({setting.data.train:,} training {item}), batch {setting.b} per"
    ]
    words[0] += f" {setting.nouns[1]}. A step all-reduces {size / 1e6:.1f} MB of gradients (1 MB is 10^6 bytes)."
    words.append("Bandwidth is the bytes of an epoch divided by its communication time.")
    return Study("volumes", words, [Grid(columns)], facts={"setting": setting, "truth": truth, "size": size})


def sizes(rng: random.Random) -> Study:
    """Models with their parameters and the bytes of their gradients."""
    data = rng.choice((CIFAR10, IMAGENET))
    chosen = rng.sample(MODELS, rng.randint(3, 5))
    if data is IMAGENET and rng.random() < 0.3:
        chosen = [*TEXT_MODELS]
    counts = [float(parameters(model, data)) for model in chosen]
    columns = [Column("model", "Model", [model.name for model in chosen])]
    million = rng.random() < 0.5
    style = Style(rng.randint(1, 2), scale=1e6, suffix="M") if million else Style(0, commas=True)
    columns.append(Column("params", rng.choice(("Parameters", "Params", "# Parameters")), counts, style))
    big = min(counts) > 5e7
    columns.append(
        Column(
            "bytes",
            f"Gradients ({'GB' if big else 'MB'})",
            [4 * count for count in counts],
            Style(3 if big else rng.randint(1, 2), scale=1e9 if big else 1e6),
        )
    )
    what = f"trained on {data.name} ({data.classes} classes)" if chosen[0] in MODELS else "as published"
    words = [f"Models {what}, with parameters and gradients in FP32, 4 bytes each; 1 MB is 10^6 and 1 GB 10^9 bytes."]
    return Study("sizes", words, [Grid(columns)], facts={"models": chosen, "data": data})


def ranks(rng: random.Random) -> Study:
    """The ranks of one synchronised step: each waits in communication until the last has come."""
    n = rng.choice((2, 4, 8))
    compute = [rng.uniform(0.08, 0.1) for _ in range(n)]
    whole = max(compute) + rng.uniform(0.01, 0.03)
    style = Style(rng.randint(1, 2), scale=1e-3)
    columns = [Column("rank", "Rank", list(range(n))), Column("compute", "Compute (ms)", compute, style)]
    columns.append(Column("comm", "Communication and waiting (ms)", [whole - value for value in compute], style))
    columns.append(Column("step", "Step time (ms)", [whole] * n, style))
    words = [
        "Every rank of one synchronised data-parallel step: a step ends when the all-reduce has ended on all ranks."
    ]
    return Study("ranks", words, [Grid(columns)], facts={"whole": whole})


def parts(rng: random.Random) -> Study:
    """A step taken apart: rows are parts or columns are parts, with shares or a total."""
    setting = drawn_setting(rng, rng.choice(("batch", "data")))
    truth = measured(rng, setting)
    shares = (rng.uniform(0.03, 0.08), rng.uniform(0.25, 0.33), rng.uniform(0.02, 0.06))
    names = {"data": shares[0], "forward": shares[1], "optimizer": shares[2]}
    names["backward"] = 1 - sum(shares)
    style = Style(rng.randint(2, 3), scale=1e-3)
    grid = Grid([Column("n", heading(rng, "n", NOUNS[0]), truth.N)])
    labels = {"data": "Data loading (ms)", "forward": "Forward (ms)", "optimizer": "Optimizer (ms)"}
    labels["backward"] = "Backward (ms)"
    for key in ("data", "forward", "backward", "optimizer"):
        grid.columns.append(Column(key, labels[key], [value * names[key] for value in truth.compute], style))
    grid.columns.append(Column("comm", "Communication (ms)", truth.comm, style))
    grid.columns.append(Column("total", rng.choice(("Total (ms)", "Total step time (ms)")), truth.step, style))
    if rng.random() < 0.5:
        grid.columns.append(Column("comm%", "Communication (%)", over(truth.comm, truth.step), Style(1, scale=0.01)))
    words = [f"Where the time of a step goes, {setting.model.name} on {setting.data.name}. The parts do not overlap."]
    return Study("parts", words, [grid], facts={"truth": truth})


def percents(rng: random.Random) -> Study:
    """Shares of a step in %, one row for each part."""
    values = sorted((rng.uniform(1, 9) for _ in range(rng.randint(3, 5))), reverse=True)
    seconds = [value * 10e-3 for value in values]
    names = ["Backward", "Forward", "All-reduce", "Data loading", "Optimizer"][: len(values)]
    style = Style(rng.randint(1, 2))
    columns = [Column("part", "Part of the step", names)]
    columns.append(Column("seconds", "Time (ms)", seconds, Style(style.digits, scale=1e-3)))
    columns.append(
        Column("share", "Share (%)", [value / sum(values) for value in values], Style(style.digits, scale=0.01))
    )
    words = [f"A step on {rng.choice((2, 4, 8))} GPUs, taken apart; shares are of the whole step."]
    return Study("percents", words, [Grid(columns)], facts={"whole": math.fsum(seconds)})


FAMILIES: dict[str, Callable[[random.Random], Study]] = {
    "batches": batches,
    "models": models,
    "bandwidth": bandwidth,
    "gradients": gradients,
    "volumes": volumes,
    "sizes": sizes,
    "ranks": ranks,
    "parts": parts,
    "percents": percents,
    "accuracies": accuracies,
    "accumulation": accumulation,
    "fractions": fractions_printed,
    "summary": summary,
    "batch rows": batch_rows,
    "strategies": strategies,
}
