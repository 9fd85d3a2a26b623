"""Commit a transaction as the version after `base`, or not at all.

`LanceDataset.commit` moves a transaction on top of what was committed since it was read, if Lance knows of no
conflict. It reports the number of the version to a namespace, though, before that version is there. The namespace here
refuses every number but the next one, and has Lance's own directory namespace create that version, which fails if it
exists.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlparse

import lance
from lance.namespace import DirectoryNamespace
from lance_namespace import LanceNamespace, ListTableVersionsRequest, ListTableVersionsResponse
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    LanceNamespaceError,
    TableNotFoundError,
    TableVersionNotFoundError,
)

from pennon.errors import PennonError
from pennon.format.commit import RetryableConflict, raise_conflict
from pennon.format.manifest import VERSIONS
from pennon.format.snapshot import Snapshot
from pennon.secrets import redact_exception

SUFFIX = ".lance"
# Answers of a store that cannot copy an object on the condition that the target is missing. Nothing was created then.
# Some servers refuse a part that is copied, because the request has no body.
REFUSALS = ("411 Length Required", "501 Not Implemented", "not implemented", "not supported")


# Identities of the stores that have refused one in this process.
_refused: set[tuple[str, ...]] = set()


class NoExactCommits(Exception):
    """The store cannot create a version in this way; nothing was committed."""


def has_exact_commits(base: Snapshot) -> bool:
    """Whether the directory namespace finds the table: it looks for `root/name.lance`, and not for every name. Where
    another service keeps the versions (`s3+ddb://`), commits must go through that."""
    root, _, name = base.location.uri.rstrip("/").rpartition("/")
    if not root or not name.endswith(SUFFIX) or "+" in urlparse(base.location.uri).scheme:
        return False
    if base.location.store_identity in _refused:
        return False
    directory, table = _namespace(base)
    try:
        directory.describe_table_version({"id": table, "version": base.version})
    except (TableNotFoundError, TableVersionNotFoundError, InvalidInputError):
        return False
    except (LanceNamespaceError, OSError, ValueError, RuntimeError):
        return True  # a store that does not answer will not answer the commit either
    return True


def commit_exactly(base: Snapshot, operation: lance.LanceOperation.BaseOperation) -> Snapshot:
    """One transaction on top of `base`; `RetryableConflict` if there is a newer version. After a `StoreUnavailable` it
    is unknown whether it was committed. `NoExactCommits` if the store cannot do it."""
    directory, table = _namespace(base)
    namespace = _NextVersion(directory, base.version + 1)
    try:
        committed = lance.LanceDataset.commit(
            base.location.uri,
            operation,
            read_version=base.version,
            storage_options=base.location.storage_options,
            max_retries=0,
            namespace_client=namespace,
            table_id=table,
            namespace_client_managed_versioning=True,
        )
    except PennonError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        redact_exception(error)
        if namespace.impossible:
            _delete_staged(base, namespace.impossible)
            _refused.add(base.location.store_identity)
            raise NoExactCommits from error
        if namespace.refused:
            _delete_staged(base, namespace.refused)
            raise RetryableConflict(f"{base.uri} has a newer version than {base.version}", "Try again") from error
        raise_conflict(base, error)
    # The dataset of the commit would go on asking the namespace.
    return Snapshot.open(base.location, committed.version)


def _namespace(base: Snapshot) -> tuple[DirectoryNamespace, list[str]]:
    root, _, name = base.location.uri.rstrip("/").rpartition("/")
    options = {f"storage.{key}": value for key, value in base.location.options}
    table = unquote(name) if base.location.uri.startswith("file:") else name
    return DirectoryNamespace(root=root, **options), [table.removesuffix(SUFFIX)]


class _NextVersion(LanceNamespace):
    """A namespace that creates one version of a table and no other. `refused` are paths of manifests that Lance has
    staged for other numbers, or for this one after another writer has created it; `impossible` are those that the store
    cannot create."""

    def __init__(self, directory: DirectoryNamespace, version: int) -> None:
        self._directory = directory
        self._version = version
        self.refused: list[str] = []
        self.impossible: list[str] = []

    def namespace_id(self) -> str:
        return f"version {self._version}"

    def list_table_versions(self, request: ListTableVersionsRequest) -> ListTableVersionsResponse:
        return self._directory.list_table_versions(request)

    def describe_table_version(self, request: Any) -> Any:
        return self._directory.describe_table_version(request)

    def create_table_version(self, request: Any) -> Any:
        staged: str = request["manifest_path"]
        try:
            if request["version"] != self._version:
                raise ConcurrentModificationError(f"version {self._version} exists")
            return self._directory.create_table_version(request)
        except ConcurrentModificationError:
            self.refused.append(staged)
            raise
        except (LanceNamespaceError, OSError, ValueError, RuntimeError) as error:
            if any(answer.lower() in str(error).lower() for answer in REFUSALS):
                self.impossible.append(staged)
            raise


def _delete_staged(base: Snapshot, paths: list[str]) -> None:
    """Lance keeps a staged manifest if it does not know whether the version was created. Here it was not."""
    for path in paths:
        staged = f"{VERSIONS}/{path.rpartition('/')[2]}"
        if base.store.exists(staged):
            base.store.delete(staged)
