"""``archer verl-check``."""

import typer

from archer.cli.app import app, console


@app.command("verl-check")
def verl_check() -> None:
    """Whether verl finds Archer's trainer mode here, and if not, why."""
    from archer.adapters.verl.check import check_plugin

    findings = check_plugin()
    for finding in findings:
        mark = "[green]ok[/]  " if finding.ok else "[red]no[/]  "
        console.print(mark, end="")
        console.print(finding.text, markup=False, highlight=False, soft_wrap=True)
    if not findings[-1].ok:
        raise typer.Exit(1)
