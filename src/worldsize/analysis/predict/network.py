"""What collectives would cost between other numbers of workers, or over another link (method.md §5, §14)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import NamedTuple

from worldsize.analysis.bandwidth import CostModel
from worldsize.analysis.collective_cost import ROOTED, bus_factor, cost_s, steps, together_s
from worldsize.analysis.predict.simulate import NOTHING_S, Message, Network
from worldsize.analysis.study import StudyAnalysis
from worldsize.config import Hosts, burst_bytes
from worldsize.sending import AFTER_BACKWARD, Sent

FAR = 1.5
"""By how many times latency is moved to see what it does: about as far as it is off in training."""
LINK_BOUND = 0.7
"""Share of what the link can carry from which on it is the limit, not the cores that copy and add the bytes: taken, not
measured."""

OF_THE_LINK = 1.02
"""Rate factor up to which bytes are taken to be slower on the link itself, over any link alike. What is above is taken
for work of the cores on each byte. Six models had factors of 1.00 to 1.05 over 100 or 120 Mbit/s (mean of each), 1.02
to 1.11 over 300 and 1.02 to 1.31 over 800 or 1,000."""
WORK_S_PER_BYTE = 3e-10
"""What cores usually add to each byte over a link that is faster than the known one. The factors of the known link are
not scaled up with the rate: the largest of 82 errors of these models was then 34 % in place of 15 %."""


class Factors(NamedTuple):
    """How many times as long messages take in training as the benchmark of their link says."""

    latency: float = 1.0
    """Of the part that does not grow with their bytes."""
    rate: float = 1.0
    """Of the part that does."""


AS_TIMED = Factors()
USED = {"gather": {"gather"}, "scatter": {"scatter"}, "broadcast": {"scatter"}}
"""Ways of the root's link that a collective needs, named by the collective that goes that way; others need both."""
TURNS = {"gather", "scatter"}
"""To the root and back: each finds a link that has just been carrying nothing its way, and a receiver that waits."""


@dataclass(frozen=True)
class LinkModel:
    """The link between the workers of a run, or of a forecast."""

    models: Mapping[str, CostModel]
    """Cost of each collective that was timed."""
    hosts: Hosts | None
    """The emulated hosts; None where the workers share a host, or nodes are what they are."""
    world_size: int
    """Where it was timed."""
    in_turn_s: float | None = None
    """One way, without bytes to speak of, where gather and scatter take turns; None where that was not timed."""
    way_s: float = 0.0
    """What each step of a collective takes longer than it was timed, for the links' latency is larger."""
    latency_times: float = 1.0
    """By how many times all latency was changed (`changed`)."""

    @property
    def bytes_per_s(self) -> float:
        """Rate of the link: the best that a collective made of it."""
        return max(model.beta_bytes_per_s for model in self.models.values())

    def knows(self, sent: Sequence[Sent]) -> bool:
        """Whether each collective of these messages was timed."""
        return all(each.collective in self.models for each in sent)

    def over(self, hosts: Hosts | None) -> "LinkModel":
        """The same between hosts with other links."""
        if hosts is None or self.hosts is None:
            return self
        added_s = (hosts.latency_s or 0.0) - (self.hosts.latency_s or 0.0)
        way_s = self.way_s + added_s  # apart from α: it hides behind no bytes
        models = {
            name: replace(
                model,
                alpha_s=max(0.0, model.alpha_s + min(0.0, way_s)),
                beta_bytes_per_s=_rate(model.beta_bytes_per_s, self.hosts, hosts),
            )
            for name, model in self.models.items()
        }
        in_turn_s = None if self.in_turn_s is None else max(0.0, self.in_turn_s + added_s)
        return replace(self, models=models, hosts=hosts, in_turn_s=in_turn_s, way_s=max(0.0, way_s))

    def changed(self, *, rate: float = 1.0, latency: float = 1.0) -> "LinkModel":
        """The same with another rate and latency, as multiples."""
        models = {
            name: replace(each, alpha_s=each.alpha_s * latency, beta_bytes_per_s=each.beta_bytes_per_s * rate)
            for name, each in self.models.items()
        }
        in_turn_s = None if self.in_turn_s is None else latency * self.in_turn_s
        times = self.latency_times * latency
        return replace(self, models=models, in_turn_s=in_turn_s, way_s=self.way_s * latency, latency_times=times)

    @property
    def _link_s(self) -> float:
        """Of the latency of each step, what the links of emulated hosts add: that much is known."""
        return self.latency_times * ((self.hosts.latency_s if self.hosts else None) or 0.0)

    def planned_s(self, world_size: int, size_bytes: int) -> float:
        """What a plan of buckets takes an all-reduce for: latency and bytes in full (training/bucket_plan.py)."""
        model = self.models["all-reduce"]
        alpha_s = model.alpha_s + self.way_s
        return cost_s("all-reduce", world_size, alpha_s, model.beta_bytes_per_s, size_bytes, model.segment_s)

    def waiting_s(self, sent: Sequence[Sent], world_size: int) -> float:
        """How long ranks wait for what is sent after backward, one message at a time."""
        after = [each for each in sent if each.ready == AFTER_BACKWARD]
        return sum(message.alone_s for message in self.messages(after, world_size))

    def latency_share(
        self, sent: Sequence[Sent], world_size: int, factors: Factors = AS_TIMED, work_s: float = 0.0
    ) -> float:
        """The power of their latency with which the time of messages grows: 1 of latency alone, 0 of bytes alone.

        Of a sum that is about the share of latency in it; latency that hides behind bytes has none.
        """
        less, more = (
            sum(message.alone_s for message in self.changed(latency=by).messages(sent, world_size, factors, work_s))
            for by in (1 / FAR, FAR)
        )
        return min(1.0, log(more / less) / (2 * log(FAR))) if less else 0.0

    def messages(
        self, sent: Sequence[Sent], world_size: int, factors: Factors = AS_TIMED, work_s: float = 0.0
    ) -> list[Message]:
        """What a strategy sends, as the link sees it; each takes `factors` times as long as the benchmark says.

        Ranks compute for `work_s` after backward, in equal parts before each message there.
        """
        found: list[Message] = []
        between_s = _work_before_each_s(sent, work_s)
        saved_s = dict.fromkeys(TURNS, self.burst_s)  # by each way of the root's link, which has rested in backward
        first = True
        for each, turned in with_turns(sent):
            latency_s, way_s, exponent = self._latency_s(each, world_size, turned=turned)
            added = self._added_share(each, turned=turned)  # what a link adds takes as long in training
            latency_s *= added + (1 - added) * factors.latency
            used_s = factors.rate * self._bytes_s(each, world_size)
            alone_s = way_s + together_s(latency_s, used_s, exponent)
            if each.ready == AFTER_BACKWARD and self.burst_s:
                ways = USED.get(each.collective, TURNS)
                burst_s = min(*(saved_s[way] for way in ways), used_s)
                taken_s = way_s + latency_s + used_s - burst_s
                for way in TURNS:  # while a message takes longer than its bytes, its own way rests as well
                    carried_s = used_s if way in ways else 0.0
                    saved_s[way] = min(self.burst_s, max(0.0, saved_s[way] + between_s + taken_s - carried_s))
                # Those of the benchmark began after a rest as well: t(S) has the burst of the first one in it.
                alone_s, first = alone_s if first else taken_s, False
            wire_bytes = bus_factor(self.models[each.collective].as_run, world_size) * each.size_bytes
            found.append(Message(each.ready, max(alone_s, NOTHING_S), wire_bytes))
        return found

    def _latency_s(self, sent: Sent, world_size: int, *, turned: bool) -> tuple[float, float, int]:
        """Latency of a message: what was timed, what the way adds, and p, by which the first hides behind the bytes."""
        if turned and self.in_turn_s is not None:
            return self._one_way_s(self.in_turn_s, world_size), 0.0, 1
        model = self.models[sent.collective]
        count = steps(model.as_run, world_size)
        ways = 1 if model.as_run in ROOTED else count  # those that send to a root do so side by side
        return count * model.alpha_s, ways * self.way_s, model.exponent

    def _bytes_s(self, sent: Sent, world_size: int) -> float:
        """What a message would take without latency."""
        return replace(self.models[sent.collective], alpha_s=0.0).between(world_size, sent.size_bytes)

    def _added_share(self, sent: Sent, *, turned: bool) -> float:
        """Of a message's latency (without `way_s`), the share that links add."""
        added_s, timed_s = self._link_s, self.in_turn_s
        if not turned or timed_s is None:
            added_s, timed_s = added_s - self.way_s, self.models[sent.collective].alpha_s
        return min(1.0, max(0.0, added_s / timed_s)) if timed_s else 0.0

    def least_s(self, sent: Sequence[Sent], world_size: int) -> float:
        """What the bytes of a step need of a link of known rate, but for what it saves up between steps; else 0."""
        rate = self.hosts.payload_bytes_per_s if self.hosts else None
        if rate is None:
            return 0.0
        by_way = dict.fromkeys(TURNS, 0.0)
        for each in sent:
            for way in USED.get(each.collective, TURNS):
                by_way[way] += bus_factor(self.models[each.collective].as_run, world_size) * each.size_bytes
        return max(0.0, max(by_way.values()) / rate - self.burst_s)

    def factors_over(self, known: "LinkModel", factors: Factors) -> Factors:
        """What was found over a known link, over this one.

        By how much longer bytes take in training than in the benchmark is partly work of the cores for each byte: a
        smaller share over a slower link (OF_THE_LINK), and by what is usual a larger one over a faster link.
        """
        slower = min(1.0, self.bytes_per_s / known.bytes_per_s)
        excess = max(0.0, factors.rate - OF_THE_LINK)
        more = WORK_S_PER_BYTE * max(0.0, self.bytes_per_s - known.bytes_per_s)
        return factors._replace(rate=factors.rate - excess * (1 - slower) + more)

    def _one_way_s(self, timed_s: float, world_size: int) -> float:
        """Between so many: the way itself once, for any N; the rest, the root's handling, for each of the others."""
        way_s = min(timed_s, self._link_s)
        return way_s + (timed_s - way_s) * (world_size - 1) / (self.world_size - 1)

    @property
    def burst_s(self) -> float:
        """What an emulated link saves up while it carries nothing one way, as time at its rate; 0 of another."""
        rate = self.hosts.rate_bits_per_s if self.hosts else None
        return 0.0 if rate is None else burst_bytes(rate) * 8 / rate

    def network(self, slowdown: float = 0.0, factors: Factors = AS_TIMED) -> Network:
        """What all messages share; where the bytes of each take so many times as long, so do all together."""
        return Network(self.bytes_per_s / factors.rate, slowdown)


def with_turns(sent: Sequence[Sent]) -> Iterator[tuple[Sent, bool]]:
    """Each message, and whether it goes the other way through the root than the one before it."""
    for before, each in zip((None, *sent), sent, strict=False):
        other_way = before is not None and {each.collective, before.collective} == TURNS
        yield each, other_way and each.ready == AFTER_BACKWARD


def _work_before_each_s(sent: Sequence[Sent], work_s: float) -> float:
    """Of what a strategy computes after backward, the part before each message there."""
    after = sum(each.ready == AFTER_BACKWARD for each in sent)
    return max(0.0, work_s) / after if after else 0.0


def link_model_of(analysis: StudyAnalysis) -> LinkModel | None:
    """The link that the run has timed, between the most workers; None where none was."""
    timed = {size: link for size, link in analysis.links.items() if link.models}
    if not timed:
        return None
    size = max(timed)
    hosts = analysis.run.comm[size].hosts
    models = {name: _possible(model, hosts) for name, model in timed[size].models.items()}
    return LinkModel(models, hosts, size, timed[size].in_turn_s)


def _possible(model: CostModel, hosts: Hosts | None) -> CostModel:
    """The model with a rate that the link can carry.

    A sender to a root is done when the system has its bytes: over 300 Mbit/s a gather of 4 MiB seemed to run at 1.2
    times what the link carries.
    """
    most = hosts.payload_bytes_per_s if hosts else None
    return model if most is None or model.beta_bytes_per_s <= most else replace(model, beta_bytes_per_s=most)


def _rate(measured: float, old: Hosts, new: Hosts) -> float:
    """β over another link: the same share of it where the link was the limit, never more than cores have carried."""
    before, after = old.payload_bytes_per_s, new.payload_bytes_per_s
    if after is None:
        return measured
    if before is None:
        return min(measured, after)
    share = min(1.0, measured / before)
    return after * share if share >= LINK_BOUND else min(measured, after)
