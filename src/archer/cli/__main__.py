"""``python -m archer.cli``."""

from archer.cli import main

main()
