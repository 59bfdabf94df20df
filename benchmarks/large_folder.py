"""A run folder of many ranks, written as a study would leave it, but without a loop over its lines."""

import hashlib
import sys
from pathlib import Path

from large_samples import BATCH, BLOCK_STEPS, KINDS, LINK_BYTES_PER_S, SIZES, WARMUP_STEPS, LargeRun, samples
from worldsize.config import CellSettings, StudySettings
from worldsize.results.check_records import DIGEST_LENGTH, VerifyRecord
from worldsize.results.comm_records import CommRecord, CommSample
from worldsize.results.files import cell_folder
from worldsize.results.folder import write_cell, write_comm, write_study
from worldsize.results.provenance import Host, Provenance
from worldsize.results.records import CellRecord, Placement, StudyRecord
from worldsize.results.step_records import BlockConditions, UnobservedBlock
from worldsize.results.training_records import DataRecord, Divergence, Evaluation, ModelRecord
from worldsize.wire import WireBytes

PAYLOAD_BYTES = sum(size for kind, size in zip(KINDS, SIZES, strict=True) if kind == "all_reduce")
TRAIN_SAMPLES = 1_281_167
COMM_SIZES = tuple(1024 * 4**k for k in range(7))
COMM_SAMPLES = 3
LATENCY_S = 20e-6


def make_large_run(folder: Path, run: LargeRun) -> Path:
    """Write the run folder, with the lines of each rank, and return it."""
    plan = [_settings(run, world) for world in run.worlds]
    for settings in plan:
        write_cell(folder, _cell_record(run, settings))
        place = cell_folder(folder, settings.id)
        for rank, (steps, spans) in enumerate(samples(run, settings.world_size)):
            steps.write_ndjson(place / f"rank{rank}.jsonl")
            if settings.world_size > 1:
                spans.write_ndjson(place / f"rank{rank}.spans.jsonl")
        if settings.world_size > 1:
            write_comm(folder, _comm_record(settings.world_size))
    write_study(folder, _study_record(run, plan))
    return folder


def _settings(run: LargeRun, world: int) -> CellSettings:
    return CellSettings(
        strategy="ddp" if world > 1 else "single",
        world_size=world,
        batch_size=BATCH,
        steps=run.blocks * BLOCK_STEPS,
        block_steps=BLOCK_STEPS,
        warmup_steps=WARMUP_STEPS,
    )


def _placement(world: int) -> Placement:
    return Placement(
        processes=world,
        threads_per_worker=1,
        cores=tuple((rank,) for rank in range(world)),
        oversubscribed=False,
        device="cpu",
        backend="gloo",
    )


def _cell_record(run: LargeRun, settings: CellSettings) -> CellRecord:
    world, blocks = settings.world_size, range(run.blocks)
    sent = 2 * (world - 1) * PAYLOAD_BYTES // world
    digests = (hashlib.sha256(str(sample).encode()).hexdigest()[:DIGEST_LENGTH] for sample in range(world * BATCH))
    apart = Divergence(weights=[0.0] * world, buffers=[0.0] * world) if world > 1 else None
    return CellRecord.of(
        settings,
        state="complete",
        placement=_placement(world),
        wire=WireBytes(
            payload_bytes=PAYLOAD_BYTES, busiest_rank_bytes=sent, other_rank_bytes=sent, formula="2(N−1)/N·S"
        ),
        ended_by="cap",
        steps_per_epoch=TRAIN_SAMPLES // settings.global_batch,
        evaluations=[
            Evaluation(
                epoch=0, step=run.steps, test_loss=0.5, test_accuracy=0.875, test_samples=50_000, divergence=apart
            )
        ],
        matmul_flops_per_s=1e11,
        peak_memory_bytes=2**30,
        verified=VerifyRecord(tolerance=1e-4, largest=1e-7, samples="".join(digests)),
        unobserved=[
            UnobservedBlock(session=0, block=block, step_s=[run.step_s(world)] * BLOCK_STEPS) for block in blocks[::3]
        ],
        conditions=[BlockConditions(session=0, block=block, others_cores=0.0, stolen_cores=0.0) for block in blocks],
    )


def _comm_record(world: int) -> CommRecord:
    """The collective benchmark of the link that the messages take."""
    samples_of_one, begin = [], 10**9
    for _ in range(COMM_SAMPLES):
        for size in COMM_SIZES:
            time_s = LATENCY_S + 2 * (world - 1) / world * size / LINK_BYTES_PER_S
            end = begin + round(1e9 * time_s)
            samples_of_one.append(
                CommSample(
                    collective="all-reduce",
                    size_bytes=size,
                    begin_ns=begin,
                    end_ns=end,
                    clock_error_ns=0,
                    calls=1,
                    wrong_elements=0,
                )
            )
            begin = end
    return CommRecord(
        provenance=_provenance(), world_size=world, placement=_placement(world), ranks=[samples_of_one] * world
    )


def _study_record(run: LargeRun, plan: list[CellSettings]) -> StudyRecord:
    settings = StudySettings(
        strategies=("single", "ddp"),
        world_sizes=run.worlds,
        batch_sizes=(BATCH,),
        baseline="single",
        steps=run.blocks * BLOCK_STEPS,
        block_steps=BLOCK_STEPS,
        warmup_steps=WARMUP_STEPS,
        experiment=run.experiment,
    )
    return StudyRecord(
        name="large",
        settings=settings,
        plan=[cell.id for cell in plan],
        provenance=_provenance(),
        data=DataRecord(
            name="made",
            train_samples=TRAIN_SAMPLES,
            test_samples=50_000,
            shape=(3, 32, 32),
            classes=1000,
            verification="generated",
        ),
        model=ModelRecord(
            name="vgg11",
            parameters=PAYLOAD_BYTES // 4,
            parameter_bytes=PAYLOAD_BYTES,
            buffer_bytes=22_080,
            gradient_tensors=38,
        ),
    )


def _provenance() -> Provenance:
    host = Host(
        hostname="made",
        system="Linux",
        cpu_model="made",
        logical_cores=1024,
        physical_cores=1024,
        allowed_cores=tuple(range(1024)),
        memory_bytes=2**40,
        load_1min=0.0,
    )
    return Provenance(
        created="2026-01-01T00:00:00Z",
        command=("worldsize", "study"),
        worldsize_version="0.1.0",
        python_version="3.11",
        torch_version="2.13",
        host=host,
    )


if __name__ == "__main__":  # in a process of its own, so that its memory is not that of the caller
    make_large_run(Path(sys.argv[1]), LargeRun())
