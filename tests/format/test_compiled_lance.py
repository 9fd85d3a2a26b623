"""A new process asks an object store without importing the package of pylance, and may import it later."""

from __future__ import annotations

import subprocess
import sys

import lance
import numpy as np
import pyarrow as pa
import pytest

import pennon
from tests.support.object_store import BUCKET

ROWS = 4000
NOT_IMPORTED = "assert not {'lance', 'lance.lance', 'lance.file', 'pandas'} & set(sys.modules)"


@pytest.fixture
def opening(storage_options: dict[str, str]) -> str:
    """The first lines of a program: a table in a store, with an index. Its columns `id` and `n` have a row for 77."""
    uri = f"s3://{BUCKET}/t.lance"
    rows = pa.table({"id": np.arange(ROWS)[::-1].copy(), "n": np.arange(ROWS)})
    lance.write_dataset(rows, uri, mode="overwrite", max_rows_per_file=1000, storage_options=storage_options)
    pennon.open(uri, storage_options=storage_options, engine="local").create_index("id", ranges=2)
    return f"import sys\nimport pennon\nuri, options = {uri!r}, {storage_options!r}"


def run(*lines: str) -> None:
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_lookups_import_neither_the_package_nor_pandas(opening: str) -> None:
    run(
        opening,
        "table = pennon.open(uri, storage_options=options)",
        "assert table.count('id = 77') == 1",
        f"assert table.scan('id = 77', ['n'])['n'].to_numpy().tolist() == [{ROWS - 78}]",
        "assert not {'lance', 'lance.lance', 'lance.file'} & set(sys.modules)",
    )
    run(opening, "assert pennon.open(uri, storage_options=options).count('id = 77') == 1", NOT_IMPORTED)


def test_the_package_is_complete_when_it_is_imported_afterwards(opening: str) -> None:
    run(
        opening,
        "table = pennon.open(uri, storage_options=options)",
        "assert table.count('id = 77') == 1",
        "import lance, lance.lance, lance.file",
        "from pennon.format import compiled_lance",
        "assert lance.lance is compiled_lance._loaded['lance.lance'] is sys.modules['lance.lance']",
        "assert lance.dataset(uri, storage_options=options).count_rows('id = 77') == 1",
        "lance.write_dataset(lance.dataset(uri, storage_options=options).to_table(limit=5), uri, mode='append',"
        " storage_options=options)",
        "assert table.refresh().count() == lance.dataset(uri, storage_options=options).count_rows()",
        "assert pennon.open(uri, storage_options=options).count('n = 3') == 2",
        "assert table.count('id = 77') == 1",
    )


def test_an_index_is_built_in_a_process_that_has_looked_up(opening: str) -> None:
    run(
        opening,
        "table = pennon.open(uri, storage_options=options, engine='local')",
        "assert table.count('id = 77') == 1",
        NOT_IMPORTED,
        "table.create_index('n')",
        "import lance",
        "plan = lance.dataset(uri, storage_options=options).scanner(filter='n = 5').explain_plan()",
        "assert 'ScalarIndexQuery' in plan",
    )


def test_what_is_not_there_is_not_found(opening: str) -> None:
    run(
        opening,
        "for address, version in ((uri + 'x', None), (uri, 77)):",
        "    try:",
        "        pennon.open(address, storage_options=options, version=version)",
        "    except pennon.errors.TableNotFound as error:",
        "        assert address in str(error)",
        "    else:",
        "        raise AssertionError",
        NOT_IMPORTED,
    )


FIND = "find = compiled_lance._module\n"


@pytest.mark.parametrize(
    "change",
    [
        f"{FIND}compiled_lance._module = lambda name: object() if name == 'lance.lance' else find(name)",
        f"{FIND}compiled_lance._module = lambda name: Module() if name == 'lance.lance' else find(name)",
        "compiled_lance._executed = lambda spec: compiled_lance.import_module('no_such_module')",
    ],
    ids=["without the class", "with other arguments", "not loaded alone"],
)
def test_the_package_of_another_pylance_is_imported(opening: str, change: str) -> None:
    run(
        opening,
        "from pennon.format import compiled_lance",
        "class Module:",
        "    def _Dataset(self, uri): ...",
        change,
        "table = pennon.open(uri, storage_options=options)",
        "assert table.count('id = 77') == 1",
        "assert 'lance' in sys.modules",
        "import lance, lance.lance, lance.file",
        "assert lance.dataset(uri, storage_options=options).count_rows('id = 77') == 1",
    )
