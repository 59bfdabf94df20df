"""Which addresses the processes of a command bind while it runs."""

import ipaddress
import socket
import subprocess
import time
from dataclasses import dataclass, field

import psutil

from jobs import family

LOOK_S = 0.25
DNS = 53


@dataclass
class Bound:
    """What was seen of the sockets of some processes and of all that they started."""

    listening: set[tuple[str, int]] = field(default_factory=set)
    """Addresses and ports that somebody can connect to, or send to."""
    others: set[str] = field(default_factory=set)
    """Own addresses of all other sockets."""
    peers: set[tuple[str, str, int]] = field(default_factory=set)
    """Their own address, and whom they are connected to: a failure shows it."""
    looks: int = 0

    def look(self, *roots: int) -> None:
        """Look at all sockets of these processes and their descendants."""
        pids = set()
        for root in roots:
            try:
                pids |= {process.pid for process in family(root)}
            except psutil.NoSuchProcess:
                continue
        for each in psutil.net_connections(kind="inet"):
            if each.pid not in pids or not each.laddr:
                continue
            if each.status == psutil.CONN_LISTEN or (each.type == socket.SOCK_DGRAM and not each.raddr):
                self.listening.add((each.laddr.ip, each.laddr.port))
            elif not _asks_a_name(each):
                self.others.add(each.laddr.ip)
                if each.raddr:
                    self.peers.add((each.laddr.ip, each.raddr.ip, each.raddr.port))
        self.looks += 1

    def beyond_loopback(self) -> list[str]:
        """Addresses that are not loopback's."""
        seen = self.others | {address for address, _ in self.listening}
        return sorted(address for address in seen if not _is_loopback(address))


def _asks_a_name(each: "psutil._common.sconn") -> bool:
    """Whether this is libc's question to the host's resolver.

    torch's store asks for the name of whomever it connects to, of 127.0.0.1 too, to write it into a log line
    (`formatSockAddr` calls getnameinfo); with a slow resolver a look finds the socket.
    """
    return each.type == socket.SOCK_DGRAM and bool(each.raddr) and each.raddr.port == DNS


def _is_loopback(address: str) -> bool:
    known = ipaddress.ip_address(address)
    mapped = known.ipv4_mapped if isinstance(known, ipaddress.IPv6Address) else None
    return (mapped or known).is_loopback


def watched(*commands: "subprocess.Popen[str]", patience_s: float = 400.0) -> Bound:
    """Look at the sockets of some commands until all have ended."""
    bound, until = Bound(), time.monotonic() + patience_s
    while any(command.poll() is None for command in commands):
        bound.look(*(command.pid for command in commands))
        assert time.monotonic() < until
        time.sleep(LOOK_S)
    return bound
