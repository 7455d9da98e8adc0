"""Reading rows, one at a time, from files and hub data sets, with the place of each row for messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archer.configs.data import RowsConfig
from archer.errors import DataError

_ELEMENT_START = re.compile(r"[^\s,]")

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it was stored.

    Attributes:
        values: the columns.
        number: 1-based line of a jsonl or json file, row of a parquet file or hub split.
        where: file (or data set) and number, as messages show it.
    """

    values: Values
    number: int
    where: str

    def error(self, field: str, expected: str, found: object, action: str) -> DataError:
        """The error that a bad field of this row deserves."""
        shown = repr(found)
        shown = shown if len(shown) <= 120 else shown[:117] + "..."
        return DataError(f"{self.where}, field {field!r}: expected {expected}, found {shown}; {action}")


def read_rows(config: RowsConfig) -> Iterator[Row]:
    """Yield the rows of a file or of a hub split, in order and without holding them all.

    Raises:
        DataError: the file or data set can't be read, or a line is not a JSON object.
    """
    if config.path is not None:
        readers = {".jsonl": _read_jsonl, ".json": _read_json, ".parquet": _read_parquet}
        if not config.path.is_file():
            raise DataError(f"{config.path}: expected a data file, found none; check the path")
        yield from readers[config.path.suffix](config.path)
    else:
        yield from _read_hub(config)


def name_of(config: RowsConfig) -> str:
    """A short name of the origin: the stem of the file or the last part of the hub id."""
    return config.path.stem if config.path is not None else str(config.hub).rstrip("/").rsplit("/", 1)[-1]


def _object(value: object, number: int, where: str) -> Row:
    if not isinstance(value, dict):
        found = type(value).__name__
        raise DataError(
            f"{where}: expected a JSON object with one field a column, found {found}; fix the row"
        )
    return Row(value, number, where)


def _read_jsonl(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            where = f"{path}, line {number}"
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                if line.strip():
                    yield _object(json.loads(line), number, where)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{where}: expected UTF-8 text, found byte {error.start} invalid; convert the file"
                ) from None
            except json.JSONDecodeError as error:
                raise DataError(
                    f"{where}, column {error.colno}: expected one JSON object a line, "
                    f"found {error.msg}; fix or remove it"
                ) from None


def _read_json(path: Path) -> Iterator[Row]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        content = json.loads(text)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: expected UTF-8 text, found byte {error.start} invalid; convert the file"
        ) from None
    except json.JSONDecodeError as error:
        hint = "; one object a line is .jsonl: rename the file" if error.msg == "Extra data" else "; fix it"
        raise DataError(
            f"{path}, line {error.lineno}, column {error.colno}: expected JSON, found {error.msg}{hint}"
        ) from None
    if not isinstance(content, list):
        raise DataError(
            f"{path}: expected one array of objects, found {type(content).__name__}; "
            "wrap the rows in [...], or rename a file of one object a line to .jsonl"
        )
    decoder, place = json.JSONDecoder(), text.find("[") + 1
    line = 1 + text.count("\n", 0, place)
    for value in content:
        start = next(_ELEMENT_START.finditer(text, place)).start()
        line += text.count("\n", place, start)
        yield _object(value, line, f"{path}, line {line}")
        place = decoder.raw_decode(text, start)[1]
        line += text.count("\n", start, place)


def _read_parquet(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=1024):
                for values in batch.to_pylist():
                    number += 1
                    yield _object(values, number, f"{path}, row {number}")
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{path}: expected a parquet file, found {error}; write it again") from None


def _read_hub(config: RowsConfig) -> Iterator[Row]:
    import datasets

    where = f"{config.hub} ({config.split})"
    try:
        rows = datasets.load_dataset(
            config.hub, config.hub_config, split=config.split, revision=config.revision
        )
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(
            f"{where}: expected a data set that `datasets` can load, found {type(error).__name__}: {error}; "
            "check hub, hub_config, split and revision, the network, and `hf auth login` for gated data"
        ) from error
    for number, values in enumerate(rows, start=1):
        yield _object(values, number, f"{where}, row {number}")
