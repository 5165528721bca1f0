"""The files of a file sink: where they are, how a transaction becomes visible, and who may delete them.

    out/part-00000007-00000-0000.parquet     committed rows: checkpoint, subtask, and a number
    out/k=a/part-00000007-00000-0000.parquet   the same, of one partition (see ``partitions``)
    out/_staging/3f0c-00000-000003.staged    rows of an open or prepared transaction; no glob for .parquet finds it
    out/_staging/LOCK FENCE                  which job may write here (see ``dataflow.store.lock``)
    out/_commits/7.json                      the files of checkpoint 7, written once all of them are in place
    out/_commits/0.json                      the files that were here before this job, in append mode
    out/_commits/columns.json                from which checkpoint on files have other columns, if they do

The rename is the commit of a file. ``_commits`` is for readers that want all of a checkpoint or nothing of it, and it
records which files are ours. Two files of the same name differ by their checksum, and in the lists also by the run that
wrote them. The name of a staged file begins with a hash of the run: a run that lost the directory without noticing has
other names, so it neither deletes nor commits its successor's staged files.

Handles and commit lists are untrusted documents: they may only name files of these two directories, in the form above.
Symbolic links instead of our files are not followed.

The example has Parquet files; other formats differ only in the suffix.

Invariant: a file that ends in the suffix of a format is whole, durable and committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, Final

import xxhash

from dataflow.clock import Clock, SystemClock
from dataflow.contracts.sink import Handle, TakenBack
from dataflow.errors import OutputExists, StoreError
from dataflow.store.files import FileSystem, NotAFile, is_directory, storing
from dataflow.store.lock import DirectoryLock
from operators.sinks.changed_columns import ChangedColumns
from operators.sinks.commits import STAGED, CommitLists, CommittedFile, Transaction, checkpoint_in
from operators.sinks.formats import SUFFIXES, FileFormat, is_folder

__all__ = ["OutputDirectory", "staged_name"]

_CLOCK: Final = SystemClock()
_CHUNK: Final = 1 << 20


def staged_name(run_id: str, subtask: int, number: int) -> str:
    """Return the name of the staged file ``number`` of a subtask of run ``run_id``.

    >>> staged_name("seed-7", 0, 3)
    'e2dc818b-00000-000003.staged'
    """
    return f"{xxhash.xxh3_64_hexdigest(run_id.encode())[:8]}-{subtask:05d}-{number:06d}{STAGED}"


class OutputDirectory:
    """The directory of one file sink. One job at a time may use it: the one inside ``hold``."""

    def __init__(self, path: Path, format_: FileFormat, *, files: FileSystem, clock: Clock = _CLOCK) -> None:
        self.path = path
        self.staging = path / "_staging"
        self.commits = CommitLists(path, files)
        self.columns = ChangedColumns(self.commits.path, files)
        self._format = format_
        self._files = files
        self._clock = clock
        self._holder: DirectoryLock | None = None  # of the run inside hold(); there is one at most

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without this process's lock. The path is absolute, for other working directories."""
        moved = OutputDirectory(self.path.absolute(), self._format, files=self._files, clock=self._clock)
        return moved.__dict__

    @contextmanager
    def hold(self, run_id: str) -> Iterator[None]:
        """Lock the directory while inside. Raises: DirectoryInUse naming the holder; StoreError."""
        self._make(self.staging)
        lock = DirectoryLock(self.staging, files=self._files, clock=self._clock, guards=self.path)
        lock.acquire(run_id)
        self._holder = lock
        try:
            yield
        finally:
            self._holder = None  # before the release, after which another run may set its own
            lock.release()

    def make(self) -> None:
        """Make the directories. Raises: StoreError."""
        self._make(self.staging, self.commits.path)

    def _make(self, *inside: Path) -> None:
        """Make the directory, and the directories ``inside`` it. Raises: StoreError."""
        with storing("make", self.path):
            if self.path.exists() and not self.path.is_dir():
                raise StoreError(
                    f"cannot make {self.path}: it is a file, expected a directory; move it, or choose another path"
                )
            self._files.make_directories(self.path)
        for directory in inside:
            with storing("make", directory):
                self._files.make_directory(directory)

    def newest_first(self) -> Iterator[CommittedFile]:
        """Yield the committed files, those of the newest checkpoint first."""
        for _, files in sorted(self.commits.all().items(), reverse=True):
            yield from sorted(files, key=lambda committed: (self._written(committed), committed.file), reverse=True)

    def _written(self, committed: CommittedFile) -> int:
        """Return when a file was written, because files of several jobs may be in one list; 0: it is gone."""
        try:
            return (self.path / committed.file).stat().st_mtime_ns
        except OSError:
            return 0

    def suffixes(self) -> set[str]:
        """Return the suffixes of the files of this format, as far as the directory can be read."""
        endings = SUFFIXES[self._format.name]
        if len(endings) == 1:
            return set(endings)
        names: list[str] = []
        with suppress(OSError):
            names.extend(name for name in self._names() if checkpoint_in(name) is not None)
        return {ending for ending in endings if any(name.endswith(ending) for name in names)}

    def strangers(self) -> list[str]:
        """Return the files of this format below the directory that are in no commit list."""
        ours = {committed.file for files in self.commits.all().values() for committed in files}
        suffixes = SUFFIXES[self._format.name]
        found = (str(path.relative_to(self.path)) for ending in suffixes for path in self.path.rglob(f"*{ending}"))
        return sorted(name for name in found if name not in ours)

    def refuse_output(self) -> None:
        """Raise OutputExists if there is output of any kind."""
        found = self.strangers() or sorted(file.file for files in self.commits.all().values() for file in files)
        if found:
            raise OutputExists(
                f"{self.path} already holds {len(found)} {self._format.title} files ({found[0]}, ...): restore the job "
                'that wrote them, use another directory, or pass if_exists="append" or "overwrite"'
            )

    def keep_output(self) -> None:
        """Move all commit lists into number 0, so that the numbers of a new job are free.

        Raises: OutputExists for files that are in no list, but have names of our form: ``take_back`` could not
        distinguish them from the files of an interrupted commit.
        """
        self.refuse_other_formats()
        commits = self.commits.all()
        if found := [name for name in self.strangers() if checkpoint_in(name) is not None]:
            raise OutputExists(
                f"{self.path} holds {len(found)} files ({found[0]}, ...) of another job's unfinished commit, or copied "
                "here from another output: restore that job, or rename or remove them"
            )
        if set(commits) - {0}:
            self.commits.write(0, (file for files in commits.values() for file in files))
            self.commits.remove(commits.keys() - {0})

    def refuse_other_formats(self, handles: Iterable[Handle] = ()) -> None:
        """Raise OutputExists if files of another format are committed here, or are in ``handles``."""
        committed = [file for files in self.commits.all().values() for file in files]
        for file in [*committed, *self.transactions(handles)]:
            if file.format != self._format.name:
                raise OutputExists(
                    f"{self.path} holds output in another format ({file.file}), and this sink writes "
                    f"{self._format.title}: use that format, or start over in another directory"
                )

    def refuse_unlisted(self, checkpoint: int, handles: Iterable[Handle] = ()) -> None:
        """Raise OutputExists for files that ``checkpoint`` or an earlier one committed, but that no list names.

        Readers of committed rows would miss them. Files of ``handles`` are left out, because a commit will list them.
        """
        listed_soon = {transaction.file for transaction in self.transactions(handles)}
        unlisted = [name for name in self.strangers() if (checkpoint_in(name) or checkpoint + 1) <= checkpoint]
        if lost := [name for name in unlisted if name not in listed_soon]:
            raise OutputExists(
                f"{self.path} holds {len(lost)} files ({lost[0]}, ...) of completed checkpoints that no list in "
                f"{self.commits.path} names: put the lists back, or start over in another directory"
            )

    def remove_output(self) -> None:
        """Delete every committed file. Raises: as ``refuse_strangers``."""
        self.refuse_strangers()
        if not self.commits.path.is_dir():
            return  # nothing was ever committed here
        commits = self.commits.all()
        self._remove({committed.file for files in commits.values() for committed in files}, "remove the old output of")
        self.commits.remove(commits)

    def refuse_strangers(self) -> None:
        """Raise OutputExists if there are files that are not ours."""
        if strangers := self.strangers():
            raise OutputExists(
                f"{self.path} holds {len(strangers)} {self._format.title} files that are in no commit "
                f"list of this sink ({strangers[0]}, ...), which overwrites only its own: move them away, or "
                "use another directory"
            )

    def free_name(self, checkpoint: int, subtask: int, taken: Collection[str], folder: str = "") -> str:
        """Return the first free name in ``folder``, not in ``taken`` either. Raises: StoreError."""
        start = f"{folder}/" if folder else ""
        names = (f"{start}part-{checkpoint:08d}-{subtask:05d}-{number:04d}{self._format.suffix}" for number in count())
        with storing("look at", self.path):
            return next(name for name in names if name not in taken and self._files.size(self.path / name) is None)

    def commit(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        """Rename the staged files, make that durable, then write the commit list. May be repeated.

        Files that the list already has are skipped, because readers may have moved them away since.

        Raises: StoreError; DirectoryInUse if the lock was lost and another job took over.
        """
        if not handles:
            return
        self._check_holder()
        listed, new = self._unlisted(checkpoint, handles)
        folders = self._folders(transaction.file for transaction in new)
        missing = [transaction for transaction in new if not self._is_final(transaction)]
        with storing("commit to", self.path):
            for folder in folders:
                self._files.make_directory(self.path / folder)
            for transaction in missing:
                self._files.rename(self.staging / transaction.staged, self.path / transaction.file)
            self._sync(folders)  # a power failure may restore old names, which are cleaned up later
        if new:
            self.commits.write(checkpoint, [*listed, *(transaction.committed() for transaction in new)])

    def rehearse(self, checkpoint: int, handles: Sequence[Handle]) -> TakenBack | None:
        """Return what ``take_back`` would delete after a commit of ``handles``. Nothing is changed.

        Raises: as ``verify``, ``commit`` and ``refuse_unlisted``; OutputExists if a later job has moved the
            transactions into list 0, because then the rows after ``checkpoint`` cannot be recognised.
        """
        self.verify(checkpoint, handles)
        _, new = self._unlisted(checkpoint, handles)
        appended_to = set(self.commits.of(0))
        if any([transaction.committed() in appended_to for transaction in new]):
            raise OutputExists(
                f"{self.path}: another job has appended to this output since checkpoint {checkpoint}, so the rows that "
                "were committed after the checkpoint cannot be distinguished; restore into another directory"
            )
        self._folders(transaction.file for transaction in new)
        for transaction in new:
            self._is_final(transaction)
        self.refuse_unlisted(checkpoint, handles)
        return self._committed_after(checkpoint, {transaction.file for transaction in new})[2]

    def _unlisted(
        self, checkpoint: int, handles: Sequence[Handle]
    ) -> tuple[Sequence[CommittedFile], Sequence[Transaction]]:
        """Return the files in the list of ``checkpoint``, and the transactions of ``handles`` that it lacks."""
        listed = self.commits.of(checkpoint)
        return listed, [each for each in self.transactions(handles) if each.committed() not in listed]

    def verify(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        """Raise StoreError if staged files named in ``handles`` do not have the content that this job staged.

        For restarts: another job may have used the directory since. A running job holds the lock and knows its files.
        Files in the list of ``checkpoint`` are committed, so their staged names may have been used again since.
        """
        listed = self.commits.of(checkpoint)
        for transaction in self.transactions(handles):
            if transaction.committed() in listed:
                continue
            staged = self.staging / transaction.staged
            if self._files.size(staged) is not None and not self._is_content(staged, transaction):
                raise StoreError(
                    f"{staged}: expected the {transaction.rows} rows that run {transaction.run!r} staged (xxh3 "
                    f"{transaction.xxh3}), found other content: another job wrote here, or the file is damaged; "
                    "restore an earlier checkpoint, or start over in another directory"
                )

    def take_back(self, checkpoint: int) -> TakenBack | None:
        """Delete output that later checkpoints committed, wholly or in part; return None if there was none.

        May be repeated. Commit lists are deleted first: they never name a deleted file. Raises: StoreError.
        """
        later, doomed, taken_back = self._committed_after(checkpoint)
        if not doomed and not later:
            return None
        self._folders(doomed)
        self.commits.remove(later)
        self._remove(doomed, "take back the output of later checkpoints in")
        return taken_back

    def _committed_after(
        self, checkpoint: int, kept: Collection[str] = ()
    ) -> tuple[Collection[int], Collection[str], TakenBack | None]:
        """Return the later commit lists, and the files and rows that later checkpoints committed, without ``kept``."""
        commits = self.commits.all()
        earlier = {committed.file for id, files in commits.items() if id <= checkpoint for committed in files}
        earlier.update(kept)
        later = [id for id in commits if id > checkpoint]
        listed = {file for id in later for file in commits[id] if file.file not in earlier}
        with storing("look at", self.path):
            names = {name for name in self._names() if (checkpoint_in(name) or 0) > checkpoint}
        doomed = (names | {committed.file for committed in listed}) - earlier
        taken_back = TakenBack(sum(committed.rows for committed in listed), len(doomed)) if doomed else None
        return later, doomed, taken_back

    def sweep(self) -> None:
        """Delete all staged files at the end of a run.

        Raises: StoreError; DirectoryInUse if another job took over, because the staged files are its own then.
        """
        self._check_holder()
        self.clean_staging()

    def clean_staging(self) -> None:
        """Delete all staged files, and no files of other programs. Raises: StoreError."""
        with storing("clean up", self.staging):
            for name in self._files.names(self.staging):
                if name.endswith(STAGED):
                    self._files.remove(self.staging / name)
        self.commits.clean()

    def transactions(self, handles: Iterable[Handle]) -> list[Transaction]:
        """Return the transactions of ``handles``.

        Raises: CheckpointDamaged for a handle that leads out of this directory, or is not a handle.
        """
        return [Transaction.of(handle, f"a transaction of {self.path}") for handle in handles]

    def _names(self, folder: str = "") -> Iterator[str]:
        """Yield the files of the directory and of its partition folders; links to folders are left out."""
        for name in self._files.names(self.path / folder):
            below = f"{folder}/{name}" if folder else name
            if is_folder(name) and is_directory(self.path / below):
                yield from self._names(below)
            else:
                yield below

    def _folders(self, files: Iterable[str]) -> list[str]:
        """Return the partition folders of ``files``, outer ones first.

        Raises: StoreError if one of them is a link, which would lead out of the directory.
        """
        parents = {str(parent) for file in files for parent in PurePosixPath(file).parents} - {"."}
        for folder in sorted(parents):
            if (self.path / folder).is_symlink():
                raise StoreError(
                    f"{self.path / folder} is a symbolic link, which is not followed: replace it by the directory"
                )
        return sorted(parents)

    def _remove(self, files: Collection[str], doing: str) -> None:
        """Remove committed files, durably, and partition folders that are empty then."""
        folders = self._folders(files)
        with storing(doing, self.path):
            for file in sorted(files):
                self._files.remove(self.path / file)
            present = [folder for folder in folders if is_directory(self.path / folder)]
            self._sync(present)
            for folder in reversed(present):
                self._files.remove_directory(self.path / folder)

    def _sync(self, folders: Sequence[str]) -> None:
        """Make the entries of the partition ``folders``, and of the directory, durable, inner ones first."""
        for folder in reversed(folders):
            self._files.sync_directory(self.path / folder)
        self._files.sync_directory(self.path)

    def _check_holder(self) -> None:
        if self._holder is not None:
            self._holder.check()

    def _is_final(self, transaction: Transaction) -> bool:
        staged, final = self.staging / transaction.staged, self.path / transaction.file
        staged_size, final_size = self._files.size(staged), self._files.size(final)
        if staged_size is not None and final_size is not None and not staged.samefile(final):
            raise StoreError(
                f"cannot commit {staged}: {final} already exists and is another file; move it, then restart"
            )
        size = final_size if final_size is not None else staged_size
        if size is None:
            raise StoreError(
                f"{self.path}: {transaction.rows} rows of a completed checkpoint are gone: expected {staged} or "
                f"{final}, found neither; put the file back, write to the directory "
                f"that the job began with, or restore an earlier checkpoint"
            )
        if size != transaction.size:
            raise StoreError(
                f"{staged} or {final} had {transaction.size} bytes when it was staged, found {size}; "
                "put the original back, or restore an earlier checkpoint"
            )
        if final_size is not None and not self._is_content(final, transaction):
            raise StoreError(
                f"cannot commit {transaction.rows} rows of run {transaction.run!r}: {final} already exists and holds "
                "other rows; replace it by the file that was staged, or restore an earlier checkpoint"
            )
        return final_size is not None

    def _is_content(self, path: Path, expected: CommittedFile) -> bool:
        """Return whether the file has the staged bytes. Reads all of it; follows no link. Raises: StoreError."""
        digest: Any = xxhash.xxh3_64()
        with storing("read", path):
            try:
                with self._files.open(path) as file:
                    while chunk := file.read(_CHUNK):
                        digest.update(chunk)
            except NotAFile:
                return False
        return bool(digest.hexdigest() == expected.xxh3)
