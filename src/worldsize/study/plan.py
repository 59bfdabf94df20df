"""A grid becomes cells: which are run, on which cores, what cannot be and why; and which compare with each other."""

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from worldsize.analysis.baseline import any_baselines, with_numbers
from worldsize.config import (
    Backend,
    CellChoice,
    CellSettings,
    CommandSettings,
    StudySettings,
    TrainingSettings,
    validated,
)
from worldsize.config.script import PYTHON_ALONE, TO_RUN, TUNED, Script, script_of, threads_of_torchrun
from worldsize.errors import DataError, UsageError
from worldsize.launch.cluster import Cluster, ThisMachine
from worldsize.launch.environment import tuned_environment
from worldsize.launch.job import Node
from worldsize.launch.placement import default_threads, place
from worldsize.measure.cores import Cores, as_cores
from worldsize.results.records import Findings, Placement, WarningRecord
from worldsize.traits import ALL_CORES, BASELINE_STRATEGY, TraitsRecord, traits_of

ONE_PROCESS = "it runs in one process, so its workers cannot be on different hosts."
"""Why some strategies have no cells over several hosts."""
MAX_READ = 4
"""Global batches that are read to compare them with those of other world sizes, at most."""


@dataclass(frozen=True)
class PlannedCell:
    """One cell of the plan."""

    settings: CellSettings
    placement: Placement
    own_traits: TraitsRecord | None = None

    @property
    def id(self) -> str:
        """Name of the cell."""
        return self.settings.id

    @property
    def strategy(self) -> str:
        """Name of its strategy."""
        return self.settings.strategy

    @property
    def label(self) -> str:
        """Tells it from another cell with the same strategy, N and b."""
        return self.settings.label

    @property
    def alone(self) -> bool:
        """Whether it is one worker with all cores (method.md §6)."""
        program = self.settings.program
        return self.label == ALL_CORES if program is None else program.alone

    @property
    def world_size(self) -> int:
        """Number of workers N."""
        return self.settings.world_size

    @property
    def batch_size(self) -> int:
        """Local batch b."""
        return self.settings.batch_size

    @property
    def global_batch(self) -> int:
        """B = N·b·K."""
        return self.settings.global_batch

    @property
    def traits(self) -> TraitsRecord:
        """Of its strategy."""
        return traits_of(self.settings.strategy, self.own_traits)


def world_sizes(settings: StudySettings, findings: Findings) -> tuple[int, ...]:
    """The world sizes that were asked for, or those that the look before the start has chosen (config/study.py)."""
    return settings.world_sizes or findings.world_sizes


def sharing_cores(settings: StudySettings, findings: Findings, cluster: Cluster) -> int:
    """How many workers compute on the same cores at most; 1 where each has a GPU."""
    on_gpus = findings.gpus and settings.backend != "gloo"
    return 1 if on_gpus else _busiest(world_sizes(settings, findings), cluster)


def _busiest(sizes: Sequence[int], cluster: Cluster) -> int:
    """Workers on the node that has most."""
    return max((node.processes for node in cluster.share_out(max(sizes))), default=max(sizes))


def make_plan(
    settings: StudySettings, findings: Findings, cores: Cores | Sequence[int], cluster: Cluster | None = None
) -> list[PlannedCell]:
    """All cells that can be: those named one by one, or the grid in the order local batch, world size, strategy.

    `cores` (plain numbers are whole cores) and the GPUs of the findings are those of this machine, or of each node of
    the cluster; they are alike. Raises UsageError where what was asked for cannot be run: a batch larger than its
    data, more workers than GPUs or places on the nodes, a strategy that fits none of the world sizes, two cells of the
    same name.
    """
    cluster = cluster or ThisMachine()
    nodes = cluster.nodes
    sizes = world_sizes(settings, findings)
    gpus = 0 if settings.backend == "gloo" else len(findings.gpus)
    if nodes:
        _check_room(settings, sizes, nodes)
    busiest = _busiest(sizes, cluster)
    check_devices(settings.backend, sizes, len(findings.gpus), busiest)
    share = default_threads(as_cores(cores).threads, busiest)
    if settings.script:
        _check_nodes(settings, cluster, sizes)
        return _commands(settings, findings, sizes, as_cores(cores), gpus)
    threads = settings.threads_per_worker or share
    choices = list(settings.cells) or list(_grid(settings, findings, sizes, nodes))
    if findings.train_samples is not None:
        _check_batches(choices, findings.train_samples, settings.accumulate)
    if not (nodes or gpus) and threads * max(sizes) <= as_cores(cores).threads:
        every = threads * max(sizes) if settings.threads_per_worker else as_cores(cores).threads
        choices = [*_with_all_cores(settings, choices, every), *choices]
    shared = settings.model_dump(include=set(TrainingSettings.model_fields)) | {"threads_per_worker": threads}
    cells = []
    for choice in choices:
        cell = validated(CellSettings, {**shared, **choice.model_dump(exclude_none=True)})
        processes = _processes(findings, choice)
        placement = place(
            world_size=cell.world_size,
            processes=processes,
            threads_per_worker=share if settings.replay else cell.threads_per_worker or threads,
            cores=cores,
            gpus=gpus,
            backend=settings.backend,
            nodes=cluster.share_out(processes),
        )
        placement = _waiting(placement, threads) if settings.replay else placement
        cells.append(PlannedCell(cell, placement, findings.own_traits.get(cell.strategy)))
    _check_names(cells)
    return cells


def _waiting(placement: Placement, threads: int) -> Placement:
    """The placement of workers that only wait: several may share a core and take nothing of each other's computing.

    Each is pinned to its share of the cores, as training is unless it was given fewer threads: between two hosts a
    message of 1 KiB took 0.22 ms in training, 0.23 in a rehearsal, and 0.39 where ranks were free to move; steps of 13
    all-reduces between 8 hosts on two cores took 413 and 488 ms.
    """
    return placement.model_copy(update={"threads_per_worker": threads, "oversubscribed": False, "on_siblings": ()})


def _commands(
    settings: StudySettings, findings: Findings, sizes: Sequence[int], cores: Cores, gpus: int
) -> list[PlannedCell]:
    """Each command at each world size; a script by itself, with all cores, first, as it is what others must beat."""
    shared = settings.model_dump(include=set(TrainingSettings.model_fields))
    own = {"samples_per_step", "keep_outputs", "in_place", "one_at_a_time"}
    cells = []
    for name, text in zip(settings.strategies, settings.script, strict=True):
        script, ordered = script_of(text), sorted(set(sizes))
        commands = _of_command(name, script, ordered, gpus, settings.hosts, tuned=settings.tuned)
        for strategy, size, program in commands:
            program = program.model_copy(update=settings.model_dump(include=own))
            choice = {"strategy": strategy, "world_size": size, "batch_size": 1}
            cell = validated(CellSettings, {**shared, **choice, "program": program.model_dump(context=TO_RUN)})
            placement = Placement(
                processes=size,
                threads_per_worker=cores.threads if program.alone else max(1, cores.threads // max(sizes)),
                cores=_cores_of_hosts(cores, max(sizes)) if settings.hosts else (cores.numbers,) * size,
                oversubscribed=False,
                room_cores=cores.room,
                device="cuda" if gpus else "cpu",
                backend="nccl" if gpus else "gloo",
            )
            cells.append(PlannedCell(cell, placement, findings.own_traits.get(strategy)))
    _check_names(cells)
    return sorted(cells, key=lambda cell: not cell.settings.program.alone)  # type: ignore[union-attr] # all have one


def _check_nodes(settings: StudySettings, cluster: Cluster, sizes: Sequence[int]) -> None:
    """Raise UsageError for commands that cannot be started where their workers are to be."""
    typed = next((text for text in settings.script if script_of(text).typed), None)
    spread = cluster.share_out(max(sizes)) if cluster.nodes else ()
    if spread:
        cluster.prefix(spread[0])
    if typed is not None and (spread or settings.hosts):
        raise UsageError(
            f"{typed!r} was given, and several hosts; a launcher's command is run on one\n"
            "Give the script alone, such as train.py: then worldsize starts torchrun on each host."
        )


def _cores_of_hosts(cores: Cores, hosts: int) -> tuple[tuple[int, ...], ...]:
    """Those of each emulated host, which stands for a machine: one by itself has no more than beside others."""
    each = max(1, cores.threads // hosts)
    ring = [cores.numbers[place % len(cores.numbers)] for place in range(hosts * each)]
    return tuple(tuple(ring[host * each : (host + 1) * each]) for host in range(hosts))


def _of_command(
    name: str, script: Script, sizes: Sequence[int], gpus: int, hosts: object, *, tuned: bool
) -> Iterator[tuple[str, int, CommandSettings]]:
    """The cells of one command: strategy, world size, and what is run. Source: method.md §6.

    On GPUs one worker of torchrun is one process by itself; over hosts one host with its cores is the baseline.
    """
    beside = not (script.typed or gpus or hosts)
    if beside:
        yield f"{name}{PYTHON_ALONE}", 1, script.by_itself
    for size in sizes:
        threads = threads_of_torchrun(max(sizes)) if beside and size == 1 else {}
        yield name, size, script.command(size, threads)
        if tuned:
            yield f"{name}{TUNED}", size, script.command(size, {**threads, **tuned_environment()})


def _grid(
    settings: StudySettings, findings: Findings, sizes: Sequence[int], nodes: Sequence[Node]
) -> Iterator[CellChoice]:
    try:
        batches = {size: list(settings.grid(size)) for size in sorted(set(sizes))}
    except ValueError as error:
        raise UsageError(f"{error}\nGive a --global-batch that every world size divides.") from None
    for number in range(max(map(len, batches.values()))):
        for size, local in batches.items():
            for strategy in _strategies_at(settings, findings, size, sizes, nodes):
                yield CellChoice(strategy=strategy, world_size=size, batch_size=local[number])


def _with_all_cores(settings: StudySettings, choices: Sequence[CellChoice], threads: int) -> Iterator[CellChoice]:
    """One worker with so many threads: all cores, or those that were asked for, of all workers (method.md §6).

    It has the batch of one worker, and the global batch of the largest world. What is to be run is as it was typed
    where cells, a number of steps or epochs, a sweep or an experiment say so; on emulated hosts one of them stands for
    a machine.
    """
    exact = settings.cells or settings.sweep or settings.experiment or settings.hosts or settings.replay
    baseline = any(choice.strategy == BASELINE_STRATEGY for choice in choices)
    if exact or settings.budget is None or settings.one_worker == "wrapped" or not baseline:
        return
    largest = max(choice.world_size for choice in choices)
    if largest == 1:
        return
    batches = {choice.batch_size: None for choice in choices if choice.world_size == 1}
    batches |= {choice.batch_size * largest: None for choice in choices if choice.world_size == largest}
    shared = {"strategy": BASELINE_STRATEGY, "world_size": 1, "threads_per_worker": threads}
    for batch in batches:
        yield validated(CellChoice, {**shared, "batch_size": batch, "label": ALL_CORES})


def _processes(findings: Findings, choice: CellChoice) -> int:
    name = f"{choice.strategy}@{choice.world_size}"
    if name not in findings.processes:
        raise UsageError(findings.refused[name])
    return findings.processes[name]


def _strategies_at(
    settings: StudySettings, findings: Findings, world_size: int, sizes: Sequence[int], nodes: Sequence[Node]
) -> list[str]:
    """The strategies that run at this world size, in the order given."""
    strategies = list(dict.fromkeys(settings.strategies))
    for name in strategies:
        if not any(f"{name}@{size}" in findings.processes for size in sizes):
            raise UsageError(findings.refused[f"{name}@{sizes[0]}"])
        if not any(_runs(settings, findings, name, size, nodes) for size in sizes):
            raise UsageError(
                f"strategy {name} was given with several hosts; it runs in one process, on one host\n"
                "Leave --hosts or --nodes out, or give another strategy."
            )
    fitting = [name for name in strategies if _runs(settings, findings, name, world_size, nodes)]
    if world_size == 1 and BASELINE_STRATEGY in fitting and settings.one_worker == "single":
        return [BASELINE_STRATEGY]
    if world_size == 1 and settings.one_worker == "wrapped":
        return [name for name in fitting if name != BASELINE_STRATEGY] or fitting
    return fitting


def _runs(settings: StudySettings, findings: Findings, strategy: str, world_size: int, nodes: Sequence[Node]) -> bool:
    """Whether a strategy runs at this world size; the workers of one process cannot be on several hosts."""
    processes = findings.processes.get(f"{strategy}@{world_size}")
    if processes is None or world_size == 1 or processes > 1:
        return processes is not None
    return settings.emulated is None and (not nodes or world_size <= nodes[0].processes)


def left_out(settings: StudySettings, findings: Findings, nodes: Sequence[Node] = ()) -> list[WarningRecord]:
    """A warning `left-out` for each reason why a strategy of the grid does not run at one of the world sizes.

    The baseline is no such strategy: it is one worker, whatever the world sizes. Of cells that are named one by one
    none is left out.
    """
    reasons: dict[str, list[str]] = {}
    strategies = () if settings.cells else dict.fromkeys(settings.strategies)
    alone = settings.one_worker == "single" and BASELINE_STRATEGY in strategies
    for strategy in strategies:
        for size in sorted({*world_sizes(settings, findings)}):
            wanted = strategy != BASELINE_STRATEGY and not (size == 1 and alone)
            if wanted and not _runs(settings, findings, strategy, size, nodes):
                reason = findings.refused.get(f"{strategy}@{size}", ONE_PROCESS)
                reasons.setdefault(reason, []).append(f"{strategy} with {size} worker{'s' if size > 1 else ''}")
    return [
        WarningRecord(code="left-out", message=f"left out: {', '.join(names)}; {reason}")
        for reason, names in reasons.items()
    ]


def _check_names(cells: Sequence[PlannedCell]) -> None:
    """Two cells of one name would write into one folder: in a name, `.`, `:` and `_` are the same."""
    named: dict[str, PlannedCell] = {}
    for cell in cells:
        other = named.setdefault(cell.id, cell)
        if other is not cell:
            both = " and ".join(dict.fromkeys(repr(each.settings.strategy) for each in (other, cell)))
            raise UsageError(
                f"two cells would be named {cell.id} (strategy {both})\n"
                "Give each cell a label of its own, or rename a strategy."
            )


def _check_room(settings: StudySettings, sizes: Sequence[int], nodes: Sequence[Node]) -> None:
    if settings.hosts not in (None, "auto"):
        raise UsageError("--hosts was given with real nodes; emulated hosts are for one machine\nLeave --hosts out.")
    room = sum(node.processes for node in nodes)
    if max(sizes) > room:
        raise UsageError(
            f"world size {max(sizes)} was given; the {len(nodes)} node(s) have room for {room} worker(s)\n"
            "Give more --nodes or --workers-per-node, or fewer workers."
        )


def check_devices(backend: Backend, sizes: Sequence[int], gpus: int, busiest: int) -> None:
    """Raise UsageError for NCCL without GPUs, and for more workers than GPUs.

    `gpus` are those of this machine or of each node, `busiest` are the workers on the node that has most.
    """
    if backend == "nccl" and not gpus:
        raise UsageError("backend nccl needs GPUs and this machine shows none; use --backend gloo")
    if not gpus or backend == "gloo" or busiest <= gpus:
        return
    if busiest < max(sizes):
        raise UsageError(
            f"world size {max(sizes)} puts {busiest} workers on one node, and a node has {gpus} GPU(s)\n"
            f"Give --workers-per-node {gpus} and enough --nodes, or --backend gloo to run on the CPU."
        )
    raise UsageError(
        f"world size {max(sizes)} was given; this machine has {gpus} GPU(s)\n"
        f"Use at most {gpus}, or --backend gloo to run on the CPU."
    )


def _check_batches(choices: Sequence[CellChoice], samples: int, accumulate: int) -> None:
    for choice in choices:
        share = samples // choice.world_size
        if not share:
            raise DataError(
                f"world size {choice.world_size} was given; there are only {samples} training samples\n"
                f"Use at most {samples} worker(s)."
            )
        if accumulate > 1 and choice.batch_size * accumulate > share:
            most = share // accumulate
            allowed = f"Use a batch size of at most {most}, or fewer" if most else f"Use at most {share}"
            raise DataError(
                f"{accumulate} micro-batches of {choice.batch_size} were given; each of {choice.world_size} worker(s) "
                f"has {share} of the {samples} training samples\n{allowed} micro-batches (--accumulate)."
            )
        if choice.batch_size > share:
            raise DataError(
                f"batch size {choice.batch_size} was given; each of {choice.world_size} worker(s) has {share} of the "
                f"{samples} training samples\nUse a batch size of at most {share}."
            )


def baseline_of(cell: PlannedCell, cells: Sequence[PlannedCell], failed: Collection[str] = ()) -> PlannedCell | None:
    """The cell of one worker that a cell is compared with: same local batch, else same global one (method.md §6).

    Cells that have `failed` (ids) have no numbers, as in the report.
    """
    return with_numbers(cell, any_baselines(cell, cells), lambda other: other.id not in failed)


def batches_to_read(cell: PlannedCell, cells: Sequence[PlannedCell]) -> int:
    """Global batches that a cell reads in its short proof: as many samples as the largest world with the same b."""
    largest = max(c.settings.world_size for c in cells if c.settings.batch_size == cell.settings.batch_size)
    return min(ceil(largest / cell.settings.world_size), MAX_READ)


def in_turn(
    cells: Sequence[PlannedCell], seed: int, session: int, block: int, *, drawn: bool = True
) -> Iterator[PlannedCell]:
    """The cells in the order of one round, which is `drawn` anew for each, and those that are added meanwhile (§8).

    So none always follows the same other one. The order is the same for the same study, session and round, on every
    rank that others have started.
    """
    known = len(cells)
    yield from random.Random(f"{seed} {session} {block}").sample(list(cells), known) if drawn else list(cells)
    while known < len(cells):
        yield cells[known]
        known += 1
