"""A Slurm of our own on this machine: one controller, two nodes with names of their own, nothing of systemd.

Each node's daemon has its own UTS namespace, so that what runs there sees the node's name as its host's.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

NODES = ("n1", "n2")
CORES = 4
"""That each node claims to have, whatever this machine has."""
START_S = 60.0
STOP_S = 20.0
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "unshare", "setpriv", "hostname")
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1,sched_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=300
KillWait=10
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs={cores} State=UNKNOWN\n"


@dataclass(frozen=True)
class Slurm:
    """A cluster that runs."""

    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """By which Slurm's commands find it."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *command: object) -> str:
        """What one of Slurm's commands prints."""
        done = subprocess.run(
            [str(word) for word in command],
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert not done.returncode, done.stderr
        return done.stdout

    def states(self) -> list[str]:
        """States of the jobs that are not over."""
        return self.run("squeue", "--noheader", "--format=%T").split()

    def clear(self) -> None:
        """End all jobs, and wait until nothing of them runs."""
        if self.states():
            self.run("scancel", "--user=root")
        _wait(lambda: not self.states() and not _steps_in(self.folder), "jobs do not end")


def missing() -> str:
    """Why there can be no Slurm here; empty where there can."""
    if os.geteuid() != 0:
        return "a Slurm of our own needs root"
    absent = [name for name in NEEDED if shutil.which(name, path=_path()) is None]
    if absent:
        return f"there is no {', '.join(absent)} here (Debian: slurm-wlm and munge)"
    named = subprocess.run(["unshare", "--uts", "hostname", NODES[0]], capture_output=True, check=False)
    return "" if not named.returncode else "a process may not have a host name of its own here"


@contextmanager
def slurm_here() -> Iterator[Slurm]:
    """Start the daemons, and stop exactly these."""
    folder = Path(tempfile.mkdtemp(prefix="ws-slurm-"))  # short: the path of a socket has 107 characters at most
    try:
        folder.chmod(0o711)
        (folder / "state").mkdir()
        _configure(folder)
        with ExitStack() as daemons:
            munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "log", "pid", "seed")]
            _daemon(daemons, folder, "munged", "--foreground", f"--socket={folder}/munge.socket", *munge)
            _wait((folder / "munge.socket").exists, "munged does not start")
            _daemon(daemons, folder, "slurmctld", "-D")
            for name in NODES:
                (folder / f"spool-{name}").mkdir()
                told = f"hostname {name} && exec slurmd -D -N {name}"
                _daemon(daemons, folder, "unshare", "--uts", "sh", "-c", told)
            slurm = Slurm(folder)
            _wait(lambda: _idle(slurm), "the nodes do not come up")
            yield slurm
            slurm.clear()
    finally:
        shutil.rmtree(folder)


def _configure(folder: Path) -> None:
    port, *ports = _free_ports(1 + len(NODES))
    text = CONFIGURATION.format(host=socket.gethostname().partition(".")[0], port=port, folder=folder)
    nodes = "".join(NODE.format(name=name, port=port, cores=CORES) for name, port in zip(NODES, ports, strict=True))
    (folder / "slurm.conf").write_text(text + nodes)
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))


def _daemon(stack: ExitStack, folder: Path, *command: str) -> None:
    with (folder / "daemons.log").open("ab") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig=TERM", *command],  # tests that are killed leave no daemon either
            env={**os.environ, "PATH": _path(), "SLURM_CONF": str(folder / "slurm.conf")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    stack.callback(_stop, process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _idle(slurm: Slurm) -> bool:
    try:
        return slurm.run("sinfo", "--noheader", "--Node", "--format=%T").split() == ["idle"] * len(NODES)
    except AssertionError:  # the controller does not listen yet
        return False


def _steps_in(folder: Path) -> Sequence[psutil.Process]:
    """What Slurm's daemons have started and is still there."""
    found = []
    for process in psutil.process_iter(["name", "environ"]):
        variables = process.info["environ"] or {}
        if process.info["name"] == "slurmstepd" and variables.get("SLURM_CONF", "").startswith(str(folder)):
            found.append(process)
    return found


def _wait(condition: Callable[[], bool], otherwise: str) -> None:
    until = time.monotonic() + START_S
    while not condition():
        assert time.monotonic() < until, otherwise
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _path() -> str:
    """Daemons are where only root looks."""
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
