"""One small study with every client of `--log` and with secrets all around it: what listens, and what is kept."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from commands import processes_of, start
from sockets import Bound, watched
from tiny import MODEL

CANARY = "canary-4d1f7b"
SECRETS = {
    name: f"{CANARY}-{number:02}-{'0' * 40}"
    for number, name in enumerate(
        (
            *("WANDB_API_KEY", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"),
            *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET"),
            *("GOOGLE_APPLICATION_CREDENTIALS", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "GITHUB_TOKEN", "NPM_TOKEN"),
            *("SLACK_WEBHOOK", "SSH_PASSPHRASE", "MY_PASSWORD", "RAY_AUTH_TOKEN", "SLURM_JWT"),
            *("NCCL_AUTH_TOKEN", "TORCH_SECRET_KEY", "OMP_PASSWORD", "GLOO_API_KEYS"),  # recorded, but for their names
        )
    )
}
ADDRESSES = {
    name: f"http://somebody:{CANARY}-address@127.0.0.1:9/x?token={CANARY}-query"
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "DATABASE_URL", "MKL_SERVER")  # the last one is recorded
}


@dataclass
class Watched:
    """A study that has ended."""

    run: Path
    out: str
    err: str
    bound: Bound


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    folder = tmp_path_factory.mktemp("watched")
    (folder / "mine.py").write_text(MODEL)
    line = "study --model mine.py:net --data digits --train-samples 64 --test-samples 16 --strategies ddp"
    small = "--baseline single --world-sizes 2 --batch-sizes 4 --threads-per-worker 1 --steps 2 --block-steps 1"
    command = start(
        *f"{line} {small} --log wandb,tensorboard,mlflow --out run --json".split(), cwd=folder, **SECRETS, **ADDRESSES
    )
    bound = watched(command)
    out, err = command.communicate()
    assert command.returncode == 0, err
    assert not processes_of(folder)
    return Watched(folder / "run", out, err, bound)
