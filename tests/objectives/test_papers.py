"""PAPERS.md names every method, its config and its golden cases."""

import re
from pathlib import Path
from typing import get_args

import pytest

from archer.configs.objective import EspoConfig, ObjectiveConfig
from archer.objectives import needs

ROOT = Path(__file__).parents[2]
ROWS = {
    cells[0].strip("` "): [cell.strip() for cell in cells]
    for line in (ROOT / "PAPERS.md").read_text().splitlines()
    if re.match(r"\| `(?!method`)[\w-]+` \|", line) and len(cells := line.strip("| ").split(" | ")) == 6
}
CLASSES = {c.model_fields["method"].default: c for c in get_args(get_args(ObjectiveConfig)[0])}
GOLDEN = "".join((Path(__file__).parent / f"test_golden{x}.py").read_text() for x in ("", "_rivals"))


def test_every_method_has_a_row():
    assert ROWS.keys() == CLASSES.keys()


@pytest.mark.parametrize("method", CLASSES)
def test_a_row_names_the_config_the_statistic_and_cases_that_exist(method):
    _, _, config, _, statistic, cases = ROWS[method]
    cls = CLASSES[method]
    assert config == f"`{cls.__name__}`"
    assert statistic == needs(cls(vocabulary_size=9) if cls is EspoConfig else cls()).statistic
    for case in re.findall(r"\b\d+[a-e]?\b", cases.split(" with ")[0]):
        assert re.search(rf'"{case}\b|[Cc]ases? .*\b{case}\b', GOLDEN), case
