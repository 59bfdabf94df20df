"""The panels of the help, and which flags of the settings each shows, in this order: the most used first.

A field of the settings that is named here is a flag of every command that takes these settings; any other has none.
"""

ARGUMENTS = "Arguments"
TABLES = "What the tables mean"
TRAIN = "What to train"
VARY = "What to vary"
MEASURE = "How to measure"
RECIPE = "Recipe"
WHERE = "Where to run"
STOPS = "Failures and resuming"
OUTPUT = "Output"

PANELS = {
    ARGUMENTS: "",
    TABLES: "column batch scaling format table",
    TRAIN: """script model data workload train_samples test_samples data_dir precision compile seed loader
        loader_workers samples_per_step""",
    VARY: """strategy strategies world_size world_sizes batch_size batch_sizes global_batch bucket_mb
        find_unused_parameters powersgd_rank powersgd_start_step accumulate
        sync_every sync_warmup_steps outer_learning_rate outer_momentum growth largest_batch resolution""",
    MEASURE: """collectives top budget steps epochs target_interval warmup_steps block_steps samples test_links
        baseline evaluate profile allow_oversubscribed tuned one_at_a_time fail_above strict judge_by""",
    RECIPE: """learning_rate optimizer lr_scaling base_batch lr_warmup_epochs lr_schedule momentum nesterov
        weight_decay label_smoothing clip_norm leave_out seeds target_accuracy
        accuracy_epochs accuracy_batch accuracy_base_batch""",
    WHERE: """backend threads_per_worker memory_limit launcher nodes workers_per_node time partition print_script
        address arrangement hosts link link_latency slow_link slow_rank master_ip master_port num_nodes rank""",
    STOPS: "checkpoint checkpoint_steps hang_timeout max_restarts min_workers",
    OUTPUT: "log keep_outputs in_place",
}
PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names.split()}
ORDER = {name: place for place, name in enumerate(PANEL_OF)}

METAVARS = {
    "script": "COMMAND",
    "column": "HEADING=QUANTITY:UNIT",
    "workload": "FILE.PY:CLASS",
    "collectives": "NAME,...",
    "bucket_mb": "MB",
    "hosts": "K",
    "slow_link": "HOST:RATE",
    "slow_rank": "RANK:TIME",
    "time": "TIME",
    "partition": "NAME",
    "address": "HOST:PORT",
    "master_ip": "ADDRESS",
}
"""What a text stands for, where the type of the field does not say it."""
ALSO = {"rank": "--node-rank", "link_latency": "--latency"}
"""Flag → another word for it."""
UNSHOWN = ("--latency",)
"""Of these, words that no help shows: shorter ones."""
REPEATED = ("script", "column", "slow_link", "slow_rank")
"""Flags that may be given several times: the text of a script may hold any sign."""
TO_SWITCH_OFF = ("checkpoint",)
"""Switches that have a `--no-` form, too: they are on in some command by default."""
