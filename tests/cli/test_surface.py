"""The surface of the command line is pinned: a flag that goes, or changes its name, breaks somebody's script."""

import subprocess
import sys
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from worldsize import __version__
from worldsize.cli.app import app
from worldsize.cli.panels import UNSHOWN

TRAINING = """
--workload --find-unused-parameters
--model --data --data-dir --train-samples --test-samples --evaluate --memory-limit --loader-workers --momentum
--clip-norm --nesterov --weight-decay --leave-out --checkpoint --checkpoint-steps --hang-timeout --max-restarts
--min-workers --profile --steps --slow-link
--epochs --precision --compile --seed --backend --threads-per-worker --loader --optimizer --learning-rate
--lr-scaling --base-batch --lr-warmup-epochs --lr-schedule --label-smoothing
--accumulate --powersgd-rank --powersgd-start-step --sync-every --sync-warmup-steps --outer-learning-rate
--outer-momentum
--master-ip --master-port --num-nodes --rank --node-rank --bucket-mb --hosts --link --link-latency --latency --log --out
--resume --json --anew --launcher --nodes --workers-per-node --partition --time --print-script --address --arrangement
"""
SURFACE = {
    "train": f"--strategy --world-size --batch-size {TRAINING}",
    "study": f"""preset --strategies --world-sizes --batch-sizes --global-batch {TRAINING}
        --growth --largest-batch --resolution --accuracy-epochs --accuracy-batch --accuracy-base-batch --seeds
        --target-accuracy
        --budget --warmup-steps --block-steps --target-interval --baseline --allow-oversubscribed
        --script --samples-per-step --keep-outputs --in-place --tuned --one-at-a-time --fail-above
        --print-toml""",
    "meter": "words --out --samples-per-step --json",
    "sweep": """--model --data --data-dir --train-samples --strategy --world-size --batch-size --growth --largest-batch
        --resolution --memory-limit --hang-timeout --steps --epochs --precision --compile --seed --backend
        --threads-per-worker --loader --hosts --link --link-latency --latency --find-unused-parameters
        --accumulate --out --resume --anew --json""",
    "comm": """--collectives --world-size --top --budget --samples --backend --threads-per-worker
        --hosts --link --link-latency --latency --slow-link --test-links --csv --out --json""",
    "verify": """--model --data --data-dir --train-samples --strategies --world-sizes --batch-size --steps --precision
        --compile --seed --backend --threads-per-worker --loader --loader-workers --optimizer --learning-rate --momentum
        --weight-decay --label-smoothing --bucket-mb --find-unused-parameters --accumulate --leave-out --out --json""",
    "predict": "run --world-sizes --strategy --batch-size --bucket-mb --link --link-latency --latency --json",
    "rehearse": """run --hosts --link --link-latency --latency --slow-link --slow-rank --strategies --batch-size
        --budget --steps --out --json""",
    "attach": "run --json",
    "report": "run --open --json",
    "scale": "runs --out --json",
    "compare": "a b --fail-above --strict --judge-by --save --markdown --json",
    "audit": """file --column --samples --model --batch --scaling --format --table --strict --out --markdown --json""",
    "doctor": "--json",
}
HEAVY = {"torch", "numpy", "scipy", "sklearn", "polars", "altair", "jinja2", "psutil", "pooch", "PIL"}
"""Not pydantic: some versions of typer use it themselves."""
NO_TORCH = (
    *("worldsize.study.run", "worldsize.report.write", "worldsize.analysis.study", "worldsize.cli.display"),
    *("worldsize.cli.comm_display", "worldsize.study.comm", "worldsize.cli.results", "worldsize.cli.audit_display"),
    *("worldsize.cli.audit_json", "worldsize.report.audit_source"),
)
BEGINS = "the help of: "
"""What stands before each, where several are asked for."""


def parameters(command: Any) -> dict[str, Any]:
    return {name: parameter for parameter in command.params for name in parameter.opts}


def commands() -> dict[str, Any]:
    group: Any = get_command(app)
    return dict(group.commands)


def loaded_by(code: str) -> tuple[set[str], str]:
    """The top-level modules that a fresh interpreter has loaded after some code, and what the code printed."""
    script = f"import sys\n{code}\nprint('\\n' + ' '.join({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    out, _, modules = done.stdout.rstrip("\n").rpartition("\n")
    return set(modules.split()), out


def test_commands_and_their_flags() -> None:
    found = {name: sorted(parameters(command)) for name, command in commands().items()}
    assert found == {name: sorted(flags.split()) for name, flags in SURFACE.items()}


def test_a_flag_means_the_same_in_every_command_that_has_it() -> None:
    seen: dict[str, str] = {}
    for name, command in commands().items():
        for flag, parameter in parameters(command).items():
            if flag in ("--out", "--csv"):  # a folder of a run, a file of samples
                continue
            # A rehearsal needs hosts; the gate of a study is between its scripts.
            if (name, flag) in (("rehearse", "--hosts"), ("study", "--fail-above")):
                continue
            if name == "predict" and flag in ("--link", "--link-latency", "--latency"):  # of any hosts
                continue
            if name == "audit" and flag in ("--model", "--samples", "--strict", "--markdown"):  # of tables
                continue
            if name == "verify" and flag in ("--steps", "--precision"):  # it times nothing, and knows fp64
                continue
            assert seen.setdefault(flag, parameter.help) == parameter.help, f"{flag} of {name}"


def test_every_flag_and_every_command_has_a_help() -> None:
    for name, command in commands().items():
        assert command.help, name
        for flag, parameter in parameters(command).items():
            assert parameter.help.endswith(".") or parameter.help.endswith(".)"), f"{name} {flag}"


def test_help_loads_nothing_heavy() -> None:
    """`--help` answers at once because it imports neither torch nor anything that measures or analyses."""
    code = f"""
from worldsize.cli.app import main
for command in {["", *SURFACE]!r}:
    sys.argv = ["worldsize", *command.split(), "--help"]
    print({BEGINS!r} + command)
    try:
        main()
    except SystemExit as end:
        assert end.code in (0, None), (command, end.code)
"""
    modules, out = loaded_by(code)
    assert not modules & HEAVY
    texts = dict(text.split("\n", 1) for text in out.split(BEGINS)[1:])
    assert texts.keys() == {"", *SURFACE}
    for command, text in texts.items():
        for name in SURFACE[command].split() if command else SURFACE:
            assert (name.lower() in text.lower()) == (name not in UNSHOWN), (command, name)


def test_a_mistake_in_a_name_of_a_preset_loads_no_torch() -> None:
    code = """
sys.argv = ["worldsize", "study", "nope"]
from worldsize.cli.app import main
try:
    main()
except SystemExit as end:
    assert end.code == 2, end.code
"""
    modules, _ = loaded_by(code)
    assert "torch" not in modules


def test_the_command_tells_its_version() -> None:
    found = CliRunner().invoke(app, ["--version"])
    assert (found.exit_code, found.output) == (0, f"worldsize {__version__}\n")


def test_the_version_and_the_errors_come_without_anything_heavy() -> None:
    modules, out = loaded_by("import worldsize; print(worldsize.__version__, worldsize.UsageError.exit_status)")
    assert not modules & HEAVY
    assert out.split()[1] == "2"


def test_the_process_of_the_command_needs_no_torch() -> None:
    """Only the look before the start, agents and workers load it."""
    code = f"""
import importlib
for module in {NO_TORCH!r}:
    importlib.import_module(module)
    assert "torch" not in sys.modules, module
"""
    loaded_by(code)
