"""What one rank does in each of its turns: steps, timed and recorded, of any workload."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch.distributed as dist

from worldsize.errors import RunError
from worldsize.measure.accelerator import device_memory
from worldsize.measure.activity import Activity
from worldsize.measure.alignment import Offset, align
from worldsize.measure.limits import peak_memory_bytes
from worldsize.measure.reference import Reference
from worldsize.measure.timeline import Step
from worldsize.ranks.checkpoint import save
from worldsize.ranks.host_collectives import between_cpus
from worldsize.ranks.recorder import Pending, Recorder, Span
from worldsize.ranks.turns import Reply, Turn
from worldsize.ranks.workload import Workload
from worldsize.results.checkpoints import checkpoint_folder
from worldsize.results.memory_records import DeviceMemory
from worldsize.results.step_records import RankActivity


@dataclass
class MadeSteps:
    """The steps that a rank made in one turn, the warm-up steps first."""

    spans: list[Span] = field(default_factory=list)
    uninstrumented: list[Step] = field(default_factory=list)
    interrupted: list[bool] = field(default_factory=list)
    reference_s: list[float | None] = field(default_factory=list)
    """Of the short computation after each step; None where there was none."""
    count: int = 0
    """Of those that were asked for: all but the warm-up steps."""
    activity: RankActivity | None = None

    def step_s(self) -> list[float]:
        """The times (s), from end to end, of the steps that were asked for and in which nothing else was done.

        All of them, where something was in each.
        """
        if not self.count:
            return []
        times = lengths(self.spans, [each is not None for each in self.reference_s])[-self.count :]
        return [time for time, out in zip(times, self.interrupted[-len(times) :], strict=True) if not out] or times


class Loop:
    """Gives a workload its turns, and records its steps."""

    def __init__(
        self,
        workload: Workload,
        recorder: Recorder,
        session: int,
        *,
        launch: int = 0,
        first_step: int = 0,
    ) -> None:
        self.workload = workload
        self.recorder = recorder
        self.session, self.launch, self.first_step = session, launch, first_step
        self._peak_bytes = 0
        self._peak_reserved_bytes: int | None = None
        self._on_device: DeviceMemory | None = None
        self._reference: Reference | None = None
        self._activity = Activity()
        self._measured_extra = False

    def take(self, turn: Turn) -> Reply:
        """Do one turn and reply; raise RunError for one that belongs to a later point of the training."""
        self._check_place(turn)
        return self._taken(turn)

    def close(self) -> None:
        """End what works for it."""
        self.workload.close()
        self._activity.close()
        if self._reference is not None:
            self._reference.close()

    def _taken(self, turn: Turn) -> Reply:
        if turn.op in ("steps", "epoch"):
            made = self._steps(turn, turn.count or (self.workload.steps_per_epoch if turn.op == "epoch" else 0))
            reply = Reply(step_s=made.step_s())
            if turn.op == "steps":
                reply.reference_s, reply.activity = made.reference_s, made.activity
                if turn.timed and turn.trains and self.workload.world.channel.rank == 0:
                    reply.gradients = self.workload.gradients()
        elif turn.op == "checkpoint":
            reply = Reply()
            if self.workload.steps:
                save(self.workload, checkpoint_folder(self.recorder.folder))
        else:
            reply = self.workload.other(turn, self._align)
        reply.peak_memory_bytes = self._peak_of_training(turn)
        reply.device_memory, reply.peak_reserved_bytes = self._on_device, self._peak_reserved_bytes
        if turn.op in ("steps", "epoch") and self.workload.steps and not self._measured_extra:
            reply.memory = self.workload.memory()
        return reply

    def _peak_of_training(self, turn: Turn) -> int:
        """The largest memory of training itself: a copy of the weights that rolled-back steps need is no part of it."""
        self._measured_extra |= turn.op == "profile" or not turn.trains
        self._on_device = device_memory(self.workload.world.device)
        if not self._measured_extra:
            self._peak_bytes = max(self._peak_bytes, peak_memory_bytes(self.workload.world.device))
            if self._on_device is not None:
                self._peak_reserved_bytes = max(self._peak_reserved_bytes or 0, self._on_device.peak_reserved_bytes)
        return self._peak_bytes

    def _check_place(self, turn: Turn) -> None:
        # Workers that were restarted in the middle of a training run would silently begin it from scratch.
        if turn.first_step is not None and turn.first_step != self.workload.steps:
            lost = turn.first_step - self.workload.steps
            way = "Resume with --resume" if self.workload.saves else "Give --checkpoint"
            raise RunError(
                f"the workers were restarted and lost {lost} training steps, usually for lack of memory\n"
                f"{way}, and free memory first."
            )

    def _steps(self, turn: Turn, count: int) -> MadeSteps:
        """Make the steps of a turn; the clocks are aligned at both ends of each turn, outside of its steps."""
        self.workload.timeline.clock.rebase()  # a GPU's events tell milliseconds in single precision (method.md §3)
        begin, made = self._align(), MadeSteps()
        if turn.anew:
            self.workload.begin_data_anew()
        if turn.reference_every and self._reference is None:
            world = self.workload.world
            self._reference = Reference(world.world_size // world.channel.world_size, world.cores)
        with (
            nullcontext() if turn.observe else self.workload.uninstrumented(),
            nullcontext() if turn.trains else self.workload.rolled_back(),
        ):
            self._make(made, turn, count, begin)
            made.activity = self._activity.end(made.count) if turn.trains and turn.timed else None
            if turn.observe:
                made.spans += self.recorder.flush(self._align(begin))
            # Steps without instruments come before those with them, or are all. They are read here, for to read one
            # as it ends would wait for the device.
            read = self.workload.timeline.clock.read
            made.spans = [(read(step.begin), read(step.end)) for step in made.uninstrumented] + made.spans
        return made

    def _make(self, made: MadeSteps, turn: Turn, count: int, begin: Offset) -> None:
        """The steps themselves."""
        # Warm-up steps that train are recorded, untimed; those before steps that only measure are not.
        warmup, every = turn.model_copy(update={"timed": False, "observe": turn.trains}), turn.reference_every
        # The reference computation tells whether something else used the cores (method.md §8). It runs after the
        # last warm-up step and after the last timed one as well, so that each timed step lies between two of them.
        for left in reversed(range(self._warmup_steps(turn))):
            self._step(made, warmup, begin, refer=every > 0 and not left)
        # The last step waits for the offset at the end: analysis/clocks.py interpolates between both.
        self._activity.begin()
        for number in range(1, count + 1):
            last = number == count
            refer = every > 0 and (last or number % every == 0)
            self._step(made, turn, begin, held=last and not begin.exact, refer=refer)
            made.count = number

    def _warmup_steps(self, turn: Turn) -> int:
        """Steps before those that count.

        Without instruments DDP is wrapped anew, and rebuilds its buckets in its second step: two.
        """
        return turn.warmup if turn.observe or not turn.warmup else max(2, turn.warmup)

    def _align(self, earlier: Offset | None = None) -> Offset:
        """What to add to marks to get rank 0's clock: from device to host, and to rank 0's host.

        Ranks that shared one clock `earlier` do so now.
        """
        if self.workload.world.channel.world_size == 1:
            return Offset(one_clock=True)
        clock = self.workload.timeline.clock
        if earlier is not None and earlier.one_clock:
            between = Offset(one_clock=True)
        else:
            between = align(clock.now, None if dist.get_backend() == "gloo" else between_cpus())
        astray_ns, error_ns = clock.astray()
        return Offset(between.offset_ns + astray_ns, between.error_ns + error_ns, between.one_clock)

    def _step(self, made: MadeSteps, turn: Turn, offset: Offset, *, held: bool = False, refer: bool) -> None:
        number = self.first_step + self.workload.steps
        result = self.workload.step(synchronise=turn.synchronise)
        step = self.workload.timeline.take()
        self._activity.stepped()
        reference_s = self._reference.time_s() if refer and self._reference else None
        made.interrupted.append(result.interrupted)
        made.reference_s.append(reference_s)
        if not turn.observe:
            made.uninstrumented.append(step)
            return
        pending = Pending(
            step=step,
            loss=result.loss,
            session=self.session,
            launch=self.launch,
            block=turn.block,
            number=number,
            epoch=result.epoch,
            timed=turn.timed and turn.synchronise and not result.interrupted,
            samples=result.samples,
            right=result.right,
            synchronised=turn.synchronise,
            offset=offset,
            reference_s=reference_s,
            held=held,
        )
        made.spans += self.recorder.add(pending)


def lengths(spans: Sequence[Span], pauses: Sequence[bool]) -> list[float]:
    """How long each step took (s): from the end of the one before it to its own, which leaves nothing out between them.

    The first of a turn, which has none before it, from its own begin; so does one after a pause, in which something was
    computed that is no part of a step. `pauses` says after which steps there was one.
    """
    free = [begin if paused else end for (begin, _), (_, end), paused in zip(spans[1:], spans, pauses, strict=False)]
    begins = [begin for begin, _ in spans[:1]] + free
    return [(end - begin) / 1e9 for begin, (_, end) in zip(begins, spans, strict=True)]
