"""Generated scaling studies that are sound: a truth model first, numbers printed from it after that.

Numbers that follow from others are computed before printing, or from what was printed; real papers do both.
"""

import random
from collections.abc import Callable
from dataclasses import replace

from audit_families import FAMILIES
from audit_numbers import Style, drawn, fractions, large, times
from audit_truth import Column, Grid, Setting, Study, Truth, drawn_setting, each, measured, over
from audit_words import heading

OPTIONAL = {"b": 0.4, "B": 0.35, "steps": 0.35, "step": 0.5, "epoch": 0.5, "rate": 0.5, "rate1": 0.25, "parts": 0.3}
OPTIONAL |= {"shares": 0.2, "efficiency": 0.6, "speedup": 0.85, "loss": 0.1, "accuracy": 0.15}


def make_study(rng: random.Random) -> Study:
    """A physically sound study."""
    if rng.random() < 0.55:
        return scaling(rng)
    make: Callable[[random.Random], Study] = rng.choice(list(FAMILIES.values()))
    return make(rng)


def scaling(
    rng: random.Random,
    *wanted: str,
    mode: str | None = None,
    setting: Setting | None = None,
    warp: Callable[[Setting, Truth], None] | None = None,
) -> Study:
    """One model on one data set at several N; `wanted` columns are there; `warp` changes what was measured."""
    setting = setting or drawn_setting(rng, mode)
    floor = rng.random() < 0.2 and setting.mode != "weak"
    truth = measured(rng, setting, floor)
    if warp:
        warp(setting, truth)
    chosen = {key for key, chance in OPTIONAL.items() if key in wanted or rng.random() < chance}
    if setting.mode == "weak":
        chosen -= {"epoch", "steps"} - set(wanted)
        chosen |= {"step"} if not chosen & {"rate", "rate1"} else set()
    elif not chosen & {"step", "epoch", "rate"}:
        chosen.add("epoch")
    if setting.mode == "data" and not chosen & {"epoch", "rate"}:
        chosen.add("epoch")
    maker = _Maker(rng, setting, truth, chosen)
    grid = Grid(maker.columns(), turned=rng.random() < 0.12)
    facts = {"setting": setting, "truth": truth, "basis": maker.basis, "speedup": maker.speedups}
    study = Study("scaling", [*_opening(rng, setting), *maker.words], [grid], facts=facts)
    if floor or "steps" in chosen or chosen >= {"epoch", "step"}:
        study.before.append(f"The last, smaller batch of an epoch is {'dropped' if floor else 'kept'}.")
    if rng.random() < 0.3:
        study.after.append(true_claim(rng, setting, maker.speedups))
    return study


def true_claim(rng: random.Random, setting: Setting, speedups: list[float]) -> str:
    """A sentence that says what the table says."""
    N, last = setting.ladder, speedups[-1]
    many, base = setting.nouns[0], f"{setting.ladder[0]} {setting.nouns[0 if setting.ladder[0] > 1 else 1]}"
    sentences = [f"Training is {last:.1f}x faster on {N[-1]} {many} than on {base}."]
    if setting.mode == "weak":
        sentences = [f"The throughput of {N[-1]} {many} is {last:.1f}x that of {base}."]
    if N[0] == 1:
        sentences.append(f"On {N[-1]} {many} we reach a scaling efficiency of {100 * last / N[-1]:.0f} %.")
    if setting.mode != "weak":
        saved = 1 - speedups[0] / speedups[1]
        sentences.append(f"Going from {base} to {N[1]} {many} takes {100 * saved:.0f} % less time per epoch.")
    return rng.choice(sentences)


def _opening(rng: random.Random, setting: Setting) -> list[str]:
    """What is trained, on what."""
    data, model, item = setting.data, setting.model, setting.data.item
    item = "sequences" if data.length > 1 else item
    words = [f"We train {model.name} on {data.name} ({data.train:,} training {item})."]
    if data.length > 1:
        words.append(f"Each sequence has {data.length} tokens.")
    if setting.mode == "batch":
        total, kind = setting.b * setting.ladder[0], "Strong scaling: the"
        words.append(f"{kind} global batch is {total} for every number of {setting.nouns[0]}.")
    else:
        kind = "Weak scaling: the" if setting.mode == "weak" else "The"
        words.append(f"{kind} batch size is {setting.b} per {setting.nouns[1]}.")
    return words


class _Maker:
    """Draws the columns of one table, in the order in which one follows from the other."""

    def __init__(self, rng: random.Random, setting: Setting, truth: Truth, chosen: set[str]) -> None:
        self.rng, self.setting, self.truth, self.chosen = rng, setting, truth, chosen
        self.from_printed = rng.random() < 0.4
        self.words: list[str] = []
        self.basis = ""
        self.speedups: list[float] = []

    def columns(self) -> list[Column]:
        """All columns of the table."""
        n, t = self.setting.ladder, self.truth
        made = [Column("n", self._head("n"), list(n))]
        if n[0] >= 4 and self.setting.nouns[1] == "GPU" and self.rng.random() < 0.5:
            made = [Column("n", "Nodes x GPUs", [f"{each // n[0]} x {n[0]}" for each in n])]
        made += [
            Column(key, self._head(key), list(getattr(t, key))) for key in ("b", "B", "steps") if key in self.chosen
        ]
        step = self._time(made, "step", t.step)
        epoch = self._time(made, "epoch", each(t.steps, step)) if self.setting.mode != "weak" else []
        rate = self._rates(made, step, epoch)
        self._parts(made, step)
        self._ratios(made, step, epoch, rate)
        self._quality(made)
        return made

    def _head(self, key: str, unit: str = "s") -> str:
        return heading(self.rng, key, self.setting.nouns, unit, self.setting.data.item)

    def _follow(self, column: Column) -> list[float]:
        """What later columns are computed from."""
        return column.seen() if self.from_printed else column.values

    def _time(self, made: list[Column], key: str, values: list[float]) -> list[float]:
        if key not in self.chosen:
            return values
        unit, style = times(self.rng, values)
        if self.rng.random() < 0.1 and not style.cut and not style.strip:
            style = replace(style, spread=self.rng.uniform(0.004, 0.02))
        made.append(Column(key, self._head(key, unit), values, style))
        return self._follow(made[-1])

    def _rates(self, made: list[Column], step: list[float], epoch: list[float]) -> list[float]:
        data, t = self.setting.data, self.truth
        kept = [min(data.train, steps * B) for steps, B in zip(t.steps, t.B, strict=True)]
        amount = [float(count * data.length) for count in kept]
        whole = bool(epoch) and "epoch" in self.chosen
        rate = over(amount, epoch) if whole else over([B * data.length for B in t.B], step)
        if "rate" in self.chosen:
            made.append(Column("rate", self._head("rate"), rate, large(self.rng, rate)))
            rate = self._follow(made[-1])
            if whole and "step" in self.chosen:
                self.words.append("Throughput is that of a whole epoch.")
        if "rate1" in self.chosen:
            single = over(rate, t.N)
            made.append(Column("rate1", self._head("rate1"), single, large(self.rng, single)))
        return rate

    def _parts(self, made: list[Column], step: list[float]) -> None:
        t = self.truth
        if "parts" in self.chosen and "step" in self.chosen:
            style = made[next(i for i, column in enumerate(made) if column.key == "step")].style or Style(3)
            style = replace(style, spread=0.0, significant=False, digits=max(style.decimals(each) for each in step))
            unit = {1.0: "s", 1e-3: "ms", 60.0: "min", 3600.0: "h"}[style.scale]
            made.append(Column("compute", self._head("compute", unit), t.compute, style))
            made.append(Column("comm", self._head("comm", unit), t.comm, style))
        if "shares" in self.chosen:
            shares = over(t.comm, t.step)
            style = Style(self.rng.randint(0, 2), scale=0.01)
            if self.rng.random() < 0.5:
                made.append(Column("compute%", self._head("compute%"), [1 - share for share in shares], style))
            made.append(Column("comm%", self._head("comm%"), shares, style))
            self.words.append("Shares are of the time of a step.")

    def _ratios(self, made: list[Column], step: list[float], epoch: list[float], rate: list[float]) -> None:
        """Speed-up and efficiency, by the definition that suits the study."""
        names = {"step": step, "epoch": epoch, "rate": rate}
        fitting = {"batch": ("epoch", "step", "rate"), "data": ("epoch", "rate"), "weak": ("rate", "step")}
        mode, N, base = self.setting.mode, self.setting.ladder, self.setting.ladder[0]
        self.basis = next((key for key in fitting[mode] if key in self.chosen), fitting[mode][0])
        source = names[self.basis]
        if self.basis == "rate":
            speedups = [value / source[0] for value in source]
        else:
            work = [n / base if mode == "weak" else 1.0 for n in N]
            speedups = [source[0] / value * more for value, more in zip(source, work, strict=True)]
        self.speedups = speedups
        if not self.chosen & {"speedup", "efficiency"}:
            return
        self._define(base)
        if "speedup" in self.chosen:
            style = drawn(self.rng, speedups)
            if self.rng.random() < 0.3:
                style = replace(style, suffix=self.rng.choice(("x", "×")))
            made.append(Column("speedup", self._head("speedup"), speedups, style))
            speedups = self._follow(made[-1])
        if "efficiency" in self.chosen:
            head = self._head("efficiency")
            values = [value * base / n for value, n in zip(speedups, N, strict=True)]
            made.append(Column("efficiency", head, values, fractions(self.rng, values, head)))

    def _define(self, base: int) -> None:
        """Say what speed-up and efficiency are; where the base is one worker, often nobody says it."""
        many, one = self.setting.nouns
        if base == 1 and self.setting.mode != "weak" and self.rng.random() < 0.5:
            return
        first = f"{base} {many if base > 1 else one}"
        what = {"epoch": "the epoch time", "step": "the step time", "rate": "the throughput"}[self.basis]
        if self.basis == "rate":
            says = f"Speed-up is {what} divided by that of {first}"
        elif self.setting.mode == "weak":
            says = f"Speed-up is that of throughput, N times the step time on {first} over the step time on N {many}"
            says = says if base == 1 else says.replace("N times", f"N/{base} times")
        else:
            says = f"Speed-up is {what} on {first} divided by {what} on N {many}"
        share = "N" if base == 1 else f"N/{base}"
        self.words.append(f"{says}; efficiency is speed-up divided by {share}.")

    def _quality(self, made: list[Column]) -> None:
        data = self.setting.data
        if "accuracy" in self.chosen and data.test and data.classes:
            best = self.rng.uniform(0.6, 0.94)
            right = [round((best + self.rng.uniform(-0.01, 0.01)) * data.test) / data.test for _ in self.truth.N]
            made.append(Column("accuracy", self._head("accuracy"), right, Style(self.rng.randint(1, 3), scale=0.01)))
            self.words.append(f"The test set has {data.test:,} images.")
        if "loss" in self.chosen:
            loss = [self.rng.uniform(0.3, 0.34) for _ in self.truth.N]
            made.append(Column("loss", self._head("loss"), loss, Style(self.rng.randint(2, 4))))
