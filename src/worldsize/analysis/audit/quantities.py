"""What a number of a table is, and which units it can have."""

from enum import StrEnum

from worldsize.analysis.audit.units import Unit


class Quantity(StrEnum):
    """What a number of a table is."""

    N = "workers"
    NODES = "nodes"
    PER_NODE = "workers per node"
    SPLIT = "workers that share a model"
    REPLICAS = "replicas of the model"
    RANK = "rank"
    BATCH = "batch size"
    EPOCHS = "epochs"
    STEPS = "steps"
    SAMPLES = "samples"
    ACCUMULATION = "accumulation"
    TIME = "time"
    STEP_TIME = "step time"
    EPOCH_TIME = "epoch time"
    RATE = "throughput"
    STEP_RATE = "steps per second"
    SPEEDUP = "speed-up"
    EFFICIENCY = "efficiency"
    GAIN = "gain"
    SERIAL = "serial fraction"
    COMPUTE = "compute time"
    COMMUNICATION = "communication time"
    DATA = "data time"
    SHARE = "share"
    UTILIZATION = "share of the link"
    WORKER_TIME = "time of all workers"
    BANDWIDTH = "bandwidth"
    ALGBW = "algorithm bandwidth"
    BUSBW = "bus bandwidth"
    BYTES = "bytes"
    ELEMENTS = "elements"
    PARAMETERS = "parameters"
    ACCURACY = "accuracy"
    LOSS = "loss"
    OTHER = "not understood"


TIMES = (Quantity.TIME, Quantity.STEP_TIME, Quantity.EPOCH_TIME)
PARTS = (Quantity.COMPUTE, Quantity.COMMUNICATION, Quantity.DATA)
AXES = (
    Quantity.N, Quantity.NODES, Quantity.PER_NODE, Quantity.SPLIT, Quantity.REPLICAS, Quantity.RANK, Quantity.BATCH,
    Quantity.ACCUMULATION, Quantity.EPOCHS,
)  # fmt: skip

KINDS = {
    "time": (*TIMES, Quantity.COMPUTE, Quantity.COMMUNICATION, Quantity.DATA, Quantity.WORKER_TIME),
    "rate": (Quantity.RATE,),
    "step_rate": (Quantity.STEP_RATE,),
    "bytes": (Quantity.BYTES,),
    "bandwidth": (Quantity.BANDWIDTH, Quantity.ALGBW, Quantity.BUSBW),
    "percent": (
        Quantity.EFFICIENCY,
        Quantity.SHARE,
        Quantity.ACCURACY,
        Quantity.SERIAL,
        Quantity.SPEEDUP,
        Quantity.GAIN,
        Quantity.UTILIZATION,
    ),
    "ratio": (Quantity.SPEEDUP, Quantity.GAIN),
}


def agrees(unit: Unit, quantity: Quantity) -> bool:
    """Whether a quantity can have a unit."""
    return quantity in KINDS.get(unit.kind, ())
