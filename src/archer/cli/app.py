"""The application object that the command modules share."""

import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from archer.errors import ArcherError

app = typer.Typer(
    help="Dual-token constraints for reinforcement learning on verifiable rewards.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()

Overrides = Annotated[
    list[str] | None, typer.Argument(help="Settings to change: train.steps=50 objective.rho=0.7")
]


def quiet() -> None:
    """Keep the libraries' own progress bars and advice out of the display."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def show_markdown(text: str) -> None:
    """Tables as such where there is room for them, else as their source, which nothing cuts off."""
    if console.is_terminal and console.width >= 110:
        console.print(Markdown(text))
    else:
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def run() -> None:
    """Run the command line; an error that was raised on purpose is shown as one message, without a trace."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TQDM_DISABLE", "1")  # bars of libraries, between our own
    try:
        app()
    except ArcherError as error:
        Console(stderr=True).print(
            f"[bold red]error:[/] {error}", highlight=False, markup=True, soft_wrap=True
        )
        sys.exit(2)
