"""Slurm's own commands."""

import subprocess

from worldsize.errors import UsageError

PATIENCE_S = 60.0
"""Slurm's commands wait for a controller that is away, longer than a person would."""


def run(*command: str) -> str:
    """What a command prints. Raises UsageError where there is none, CalledProcessError with its stderr if it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=PATIENCE_S
        )
    except FileNotFoundError:
        raise UsageError(f"there is no command {command[0]} here: this machine belongs to no Slurm cluster") from None
    except subprocess.TimeoutExpired as error:
        raise subprocess.CalledProcessError(1, command, "", f"no answer within {error.timeout:.0f} s") from None
    return done.stdout
