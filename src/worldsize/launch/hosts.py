"""Emulated hosts: each worker in a network of its own, joined by a bridge, over links of a known rate.

The agent moves into a new network namespace, which becomes the switch; each host is the namespace of a small
process that sleeps there. None of them has a name, so nothing can collide with anybody else's, and the kernel
removes a namespace, its addresses and its links when its last process ends: also after a crash or a kill −9
there is nothing left to clean up. Linux, and the rights to make namespaces (root).
"""

import ctypes
import os
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from worldsize.config import Hosts, burst_bytes
from worldsize.errors import UsageError

INTERFACE = "eth0"
"""Name of each host's interface."""
NETWORK = "10.0.0.0/16"
"""The network of the hosts. It is private to the run: the same addresses elsewhere do not matter."""
SWITCH = "10.0.0.254"
"""Address of the switch."""
NETWORKS_VARIABLE = "WORLDSIZE_NETWORKS"
"""Tells the workers the process whose network each of them joins, separated by commas."""
WHOLE = 0.9
"""Share of what a link may send at once that a packet may have: the headers of its parts come on top."""
MAX_PACKET_BYTES = 65536
"""The kernel's own limit."""
QUEUE_S = 0.05
"""How long a packet may wait in a link's queue before it is dropped."""
CONGESTION_CONTROLS = ("cubic", "reno")
"""How senders find their rate: Linux's default, or what each kernel has. Not that of this machine: over links of 50
Mbit/s, all hosts sending, bbr carried less than 95 % on 13 of 56 links (least 65 %), these two on none of 56 each."""
PATIENCE_S = 10.0
"""How long a host may take to get its network."""
_PORT = re.compile(r"^\d+: host(\d+)@\S+: <(.*?)>", re.MULTILINE)
"""The switch's end of a link, and its flags, in what `ip link` says."""
_CLONE_NEWNET = 0x40000000


def address(host: int) -> str:
    """Address of a host, counted from 0."""
    return f"10.0.{(host + 1) // 250}.{(host + 1) % 250}"


def build(hosts: Hosts) -> list[int]:
    """Move this process into a new network, the switch, and link new hosts to it; returns a process of each.

    Raises UsageError if the kernel or the tools refuse.
    """
    _system_call("unshare", _CLONE_NEWNET)
    sleepers = [_sleeper() for _ in range(hosts.count)]  # all at once: each takes a while to be there
    for sleeper in sleepers:
        _wait_for_network(sleeper)
    numbered = list(enumerate(sleeper.pid for sleeper in sleepers))
    _batch(
        (),
        "ip",
        [*_switch(), *(line for host, process in numbered for line in _cable(host, process, hosts.rate_of(host)))],
    )
    for host, process in numbered:
        _batch(_inside(process), "ip", _interface(host, hosts.count, hosts.rate_of(host)))
    _batch((), "tc", [line for host, _ in numbered for line in _shaper(f"host{host}", hosts.rate_of(host))])
    for host, process in numbered:
        _batch(_inside(process), "tc", _shaper(INTERFACE, hosts.rate_of(host)))
        if hosts.latency_s is not None:
            _delay(process, hosts.latency_s, shaped=hosts.rate_of(host) is not None)
    return [process for _, process in numbered]


def can_delay() -> bool:
    """Whether the kernel has what delays packets (netem), tried in a network of its own."""
    trial = ("unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1us")
    try:
        return subprocess.run(trial, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def join(process: int) -> None:
    """Move the calling thread into the network of a host."""
    descriptor = os.open(f"/proc/{process}/ns/net", os.O_RDONLY)
    try:
        _system_call("setns", descriptor, _CLONE_NEWNET)
    finally:
        os.close(descriptor)


def join_own(rank: int) -> None:
    """Move the calling thread into the network that the agent made for this rank, if it made any."""
    networks = os.environ.get(NETWORKS_VARIABLE)
    if networks:
        join(int(networks.split(",")[rank]))


def links_down(switch: int) -> list[int]:
    """The hosts whose link is down, as the switch sees it; `switch` is a process that lives there (the agent)."""
    command = ["nsenter", "--target", str(switch), "--net", "ip", "-oneline", "link", "show"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return sorted(int(host) for host, flags in _PORT.findall(said) if "LOWER_UP" not in flags.split(","))


def _sleeper() -> "subprocess.Popen[bytes]":
    """A process in a network of its own. setpriv: it ends with the agent, and its network with it.

    An agent that was killed before the kernel had been asked for that left its sleepers behind: they look who their
    parent is, once they have asked.
    """
    wait = f'[ "$PPID" = {os.getpid()} ] && exec unshare --net sleep infinity'
    return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "sh", "-c", wait])


def _inside(process: int) -> tuple[str, ...]:
    """The beginning of a command that runs in the network of a host."""
    return ("nsenter", "--target", str(process), "--net")


def _switch() -> list[str]:
    return [
        "link set lo up",
        f"link add switch address {_hardware(None)} type bridge",
        f"address add {SWITCH}/16 dev switch",
        "link set switch up",
    ]


def _cable(host: int, process: int, rate_bits_per_s: int | None) -> list[str]:
    """From the switch to a host."""
    peer = f"peer name {INTERFACE} address {_hardware(host)} netns {process}"
    lines = [f"link add host{host} type veth {peer}", f"link set host{host} master switch up"]
    return [*lines, *_packets(f"host{host}", rate_bits_per_s)]


def _interface(host: int, hosts: int, rate_bits_per_s: int | None) -> list[str]:
    """The interface of a host, which knows all others by their hardware addresses.

    Learnt ones are limited to 1,024 in all networks of a machine together: 32 hosts would fill that.
    """
    others = [(address(other), _hardware(other)) for other in range(hosts) if other != host]
    known = [*others, (SWITCH, _hardware(None))]
    return [
        "link set lo up",
        f"address add {address(host)}/16 dev {INTERFACE}",
        f"link set {INTERFACE} up",
        f"route change {NETWORK} dev {INTERFACE} src {address(host)} congctl {_congestion_control()}",
        *_packets(INTERFACE, rate_bits_per_s),
        *(f"neighbour add {ip} lladdr {hardware} dev {INTERFACE} nud permanent" for ip, hardware in known),
    ]


def _congestion_control() -> str:
    try:
        known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text(encoding="ascii").split()
    except OSError:  # an older kernel, which tells it to its first network only
        known = []
    return next((name for name in CONGESTION_CONTROLS if name in known), CONGESTION_CONTROLS[-1])


def _hardware(host: int | None) -> str:
    """Locally administered hardware address of a host; of the switch for None."""
    parts = "ff:ff:ff" if host is None else ":".join(f"{host >> shift & 0xFF:02x}" for shift in (16, 8, 0))
    return f"02:00:0a:{parts}"


def _packets(interface: str, rate_bits_per_s: int | None) -> list[str]:
    """Let packets be such as the link takes whole, as network cards do.

    The kernel cuts larger ones up on the core of the sender: computing beside messages over 300 Mbit/s lost 69 % of its
    speed to that, 16 % without (one worker on a core).
    """
    if rate_bits_per_s is None:
        return []
    return [f"link set {interface} gso_max_size {min(MAX_PACKET_BYTES, round(WHOLE * burst_bytes(rate_bits_per_s)))}"]


def _shaper(interface: str, rate_bits_per_s: int | None) -> list[str]:
    if rate_bits_per_s is None:
        return []
    limits = f"rate {rate_bits_per_s}bit burst {burst_bytes(rate_bits_per_s)} latency {round(QUEUE_S * 1e3)}ms"
    return [f"qdisc add dev {interface} root handle 1: tbf {limits}"]


def _delay(process: int, latency_s: float, *, shaped: bool) -> None:
    delay = ("netem", "delay", f"{round(latency_s * 1e6)}us", "limit", "100000")
    place = ("parent", "1:1") if shaped else ("root",)
    _run(*_inside(process), "tc", "qdisc", "add", "dev", INTERFACE, *place, "handle", "10:", *delay)


def _wait_for_network(sleeper: "subprocess.Popen[bytes]") -> None:
    """Wait until the process has left our network."""
    ours = Path("/proc/self/ns/net").readlink()
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if sleeper.poll() is not None:
            break
        if Path(f"/proc/{sleeper.pid}/ns/net").readlink() != ours:
            return
        time.sleep(0.001)  # no event tells of it
    raise UsageError("emulated hosts need the rights to make network namespaces: run as root")


def _batch(inside: Sequence[str], tool: str, lines: Sequence[str]) -> None:
    """Give a tool many lines at once: a process for each would take seconds for 32 hosts."""
    if lines:
        _run(*inside, tool, "-batch", "-", lines=lines)


def _run(*command: str, lines: Sequence[str] = ()) -> None:
    try:
        text = "".join(f"{line}\n" for line in lines)
        subprocess.run(command, input=text, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise UsageError(f"emulated hosts need {command[0]}: apt-get install iproute2 util-linux") from None
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or ["it said nothing"])[0]
        hint = "; this kernel has no netem: leave --link-latency out" if "netem" in command else ""
        raise UsageError(f"emulated hosts: `{' '.join(command)}` failed: {said}{hint}") from None


def _system_call(name: str, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise UsageError(f"emulated hosts need the rights to make network namespaces: {name}: {reason}")
